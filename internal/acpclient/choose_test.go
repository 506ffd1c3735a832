package acpclient

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
)

func request(kinds ...string) PermissionRequest {
	var r PermissionRequest
	r.ToolCall.Title = "rm -rf /"
	for _, k := range kinds {
		r.Options = append(r.Options, PermissionOption{ID: "id-" + k, Name: "do " + k, Kind: k})
	}
	return r
}

func TestAllowAndReject(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		offered       []string
		allow, reject string
	}{
		{[]string{"reject_once", "allow_always", "allow_once"}, "id-allow_once", "id-reject_once"},
		{[]string{"allow_always", "reject_always"}, "id-allow_always", "id-reject_always"},
		{[]string{"something"}, "", ""},
		{nil, "", ""},
	} {
		r := request(tt.offered...)
		if got := Allow(t.Context(), r); got != tt.allow {
			t.Errorf("of %v allow picked %q, want %q", tt.offered, got, tt.allow)
		}
		if got := Reject(t.Context(), r); got != tt.reject {
			t.Errorf("of %v reject picked %q, want %q", tt.offered, got, tt.reject)
		}
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, typed, want string }{
		{"by number", "2\n", "id-reject_once"},
		{"asks again", "x\n9\n\n-1\n 1 \n", "id-allow_once"},
		{"0 refuses", "0\n", "id-reject_once"},
		{"the end of the input refuses", "", ""},
		{"a last line without newline", "1", "id-allow_once"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			term := NewTerminal(strings.NewReader(tt.typed), &out)
			if got := term.Permission(t.Context(), request("allow_once", "reject_once")); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if text := out.String(); !strings.Contains(text, "rm -rf /") || !strings.Contains(text, "1  do allow_once") {
				t.Errorf("the person saw %q", text)
			}
		})
	}
}

func TestTerminalQuestionIsWithdrawn(t *testing.T) {
	t.Parallel()
	in, typed := io.Pipe()
	out := &firstWrite{seen: make(chan struct{})}
	term := NewTerminal(in, out)
	ctx, withdraw := context.WithCancel(t.Context())
	answer := make(chan string)
	go func() { answer <- term.Permission(ctx, request("allow_once")) }()
	<-out.seen
	withdraw()
	if got := <-answer; got != "" {
		t.Errorf("a question that was withdrawn was answered %q", got)
	}
	// The next one is asked all the same.
	go func() { answer <- term.Permission(t.Context(), request("allow_once")) }()
	if _, err := io.WriteString(typed, "1\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "id-allow_once" {
		t.Errorf("got %q", got)
	}
	if err := typed.Close(); err != nil {
		t.Fatal(err)
	}
}

// firstWrite says when the question is there.
type firstWrite struct {
	once sync.Once
	seen chan struct{}
}

func (w *firstWrite) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.seen) })
	return len(b), nil
}
