package acpclient

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Allow picks the option that allows once, else the one that allows always; "" when
// neither is offered.
func Allow(_ context.Context, r PermissionRequest) string {
	return pick(r, "allow_once", "allow_always")
}

// Reject picks the option that rejects once, else the one that rejects always; "", which
// refuses as well, when neither is offered.
func Reject(_ context.Context, r PermissionRequest) string {
	return pick(r, "reject_once", "reject_always")
}

func pick(r PermissionRequest, kinds ...string) string {
	for _, kind := range kinds {
		if i := slices.IndexFunc(r.Options, func(o PermissionOption) bool { return o.Kind == kind }); i >= 0 {
			return r.Options[i].ID
		}
	}
	return ""
}

// Terminal asks a person. One question at a time; the others wait.
type Terminal struct {
	in    io.Reader
	out   io.Writer
	turn  chan struct{} // holds a value while a question is open
	lines chan string
	start sync.Once
}

// NewTerminal asks on out and reads answers, a line each, from in. Reading begins with
// the first question, on a goroutine that ends when in does.
func NewTerminal(in io.Reader, out io.Writer) *Terminal {
	return &Terminal{in: in, out: out, turn: make(chan struct{}, 1), lines: make(chan string)}
}

// Permission shows the options by number and returns the one that was chosen: "" for
// none, at the end of the input, or when ctx ended first.
func (t *Terminal) Permission(ctx context.Context, r PermissionRequest) string {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ""
	}
	t.start.Do(func() { go t.read() })
	title := r.ToolCall.Title
	if title == "" {
		title = r.ToolCall.ID
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe agent asks for permission: %s\n", Plain(title))
	for i, o := range r.Options {
		fmt.Fprintf(&b, "  %d  %s\n", i+1, Plain(o.Name))
	}
	b.WriteString("  0  refuse\n")
	t.print(b.String())
	for {
		t.print("Number: ")
		select {
		case line, ok := <-t.lines:
			if !ok {
				t.print("refused\n")
				return ""
			}
			n, err := strconv.Atoi(strings.TrimSpace(line))
			switch {
			case err == nil && n == 0:
				return Reject(ctx, r)
			case err == nil && n > 0 && n <= len(r.Options):
				return r.Options[n-1].ID
			}
			t.print(fmt.Sprintf("One of 0 to %d.\n", len(r.Options)))
		case <-ctx.Done():
			t.print("no longer asked\n")
			return ""
		}
	}
}

func (t *Terminal) print(text string) {
	_, _ = io.WriteString(t.out, text) // who does not see it does not answer either
}

func (t *Terminal) read() {
	defer close(t.lines)
	s := bufio.NewScanner(t.in)
	for s.Scan() {
		t.lines <- s.Text()
	}
}
