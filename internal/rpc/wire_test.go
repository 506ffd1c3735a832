package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/rpc"
)

// exchange gives input to a Conn, lets it end, and returns what was written.
func exchange(t *testing.T, input string, h rpc.Handler, o rpc.Options) string {
	t.Helper()
	var out bytes.Buffer
	c := rpc.NewConn(strings.NewReader(input), &out, h, o)
	if err := c.Run(t.Context()); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return out.String()
}

func TestWireRules(t *testing.T) {
	t.Parallel()
	ok := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":null}` + "\n" }
	const good = `{"jsonrpc":"2.0","id":7,"method":"echo"}`
	for _, tc := range []struct {
		name, line string
		id         string // of the error answer; "" when there is none
		code       int64
	}{
		{"not JSON", `{"a":`, "null", rpc.CodeParse},
		{"not UTF-8", "{\"a\":\"\xff\"}", "null", rpc.CodeParse},
		{"byte order mark", "\ufeff{}", "null", rpc.CodeParse},
		{"scalar", `12`, "null", rpc.CodeInvalidRequest},
		{"batch", `[` + good + `]`, "null", rpc.CodeInvalidRequest},
		{"no jsonrpc", `{"id":3,"method":"m"}`, "3", rpc.CodeInvalidRequest},
		{"jsonrpc a number", `{"jsonrpc":2.0,"id":"3","method":"m"}`, `"3"`, rpc.CodeInvalidRequest},
		{"wrong jsonrpc, bad id", `{"jsonrpc":"1.0","id":{},"method":"m"}`, "null", rpc.CodeInvalidRequest},
		{"nothing in it", `{"jsonrpc":"2.0","id":3}`, "null", rpc.CodeInvalidRequest},
		{"method a number", `{"jsonrpc":"2.0","id":3,"method":1}`, "3", rpc.CodeInvalidRequest},
		{"method and result", `{"jsonrpc":"2.0","id":3,"method":"m","result":1}`, "3", rpc.CodeInvalidRequest},
		{"id an array", `{"jsonrpc":"2.0","id":[],"method":"m"}`, "null", rpc.CodeInvalidRequest},
		{"id a boolean", `{"jsonrpc":"2.0","id":true,"method":"m"}`, "null", rpc.CodeInvalidRequest},
		{"scalar params", `{"jsonrpc":"2.0","id":3,"method":"m","params":1}`, "3", rpc.CodeInvalidParams},
		{"scalar params of a notification", `{"jsonrpc":"2.0","method":"m","params":1}`, "", 0},
		{"too long", `{"jsonrpc":"2.0","id":3,"method":"` + strings.Repeat("m", 200_000) + `"}`, "null", rpc.CodeInvalidRequest},
		{"unknown response", `{"jsonrpc":"2.0","id":3,"result":1}`, "", 0},
		{"error for nobody", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, "", 0},
		{"blank", " \t\r", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// One good request before it and one after, the last without a line feed.
			got := exchange(t, good+"\r\n"+tc.line+"\n"+good, handler{request: echo}, rpc.Options{MaxLineBytes: 100_000})
			rest, first := strings.CutPrefix(got, ok("7"))
			middle, last := strings.CutSuffix(rest, ok("7"))
			if !first || !last {
				t.Fatalf("good requests around it not served: %s", got)
			}
			if tc.id == "" {
				if middle != "" {
					t.Fatalf("answered: %s", middle)
				}
				return
			}
			var m struct {
				ID    json.RawMessage `json:"id"`
				Error rpc.Error       `json:"error"`
			}
			if err := json.Unmarshal([]byte(middle), &m); err != nil {
				t.Fatalf("%v: %s", err, middle)
			}
			if m.Error.Code != tc.code || !strings.Contains(middle, `"id":`+tc.id+`,`) {
				t.Fatalf("got %s; want code %d, id %s", middle, tc.code, tc.id)
			}
			if tc.name == "too long" && !strings.Contains(middle, "100000") {
				t.Fatalf("the limit is not named: %s", middle)
			}
		})
	}
	for _, id := range []string{`0`, `-1`, `1.5`, `1.50`, `9007199254740993`, `18446744073709551616`, `1e3`, `"1"`, `1`, `""`, `null`, `"\u00e9\/"`} {
		if got := exchange(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"echo"}`, handler{request: echo}, rpc.Options{}); got != ok(id) {
			t.Errorf("id %s came back in %s", id, got)
		}
	}
}

func TestNoiseIsSkipped(t *testing.T) {
	t.Parallel()
	var noise []string
	long := strings.Repeat("x", 70_000)
	input := "banner\n[1]\n{\"level\":\"info\"}\n\xff\n" + long + "\n" + `{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n"
	got := exchange(t, input, nil, rpc.Options{
		MaxLineBytes: 60_000,
		SkipNoise:    func(line []byte) { noise = append(noise, string(line)) },
	})
	if len(noise) != 5 || noise[2] != `{"level":"info"}` || len(noise[4]) != 4096 {
		t.Errorf("noise: %d lines", len(noise))
	}
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "-32601") {
		t.Errorf("wrote %s", got)
	}
}

func TestCancelComparesIdsByType(t *testing.T) {
	t.Parallel()
	var open, passed []string
	requests := map[string]*rpc.Request{}
	exchange(t, `{"jsonrpc":"2.0","id":1,"method":"m"}
{"jsonrpc":"2.0","id":"1","method":"m"}
{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"1"}}
{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}
{"jsonrpc":"2.0","method":"end"}`, handler{
		request: func(_ context.Context, _ *rpc.Conn, r *rpc.Request) { requests[string(r.ID())] = r },
		notify: func(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
			passed = append(passed, method+string(params))
			for id, r := range requests {
				if method == "end" && r.Context().Err() == nil {
					open = append(open, id)
				}
			}
		},
	}, rpc.Options{})
	if strings.Join(open, " ") != "1" || strings.Join(passed, " ") != `$/cancel_request{"requestId":2} end` {
		t.Fatalf("open %v, passed %v", open, passed)
	}
}

func TestRequestIsAnsweredAfterTheEndOfInput(t *testing.T) {
	t.Parallel()
	var r *rpc.Request
	var out bytes.Buffer
	c := rpc.NewConn(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"m"}`), &out, handler{
		request: func(_ context.Context, _ *rpc.Conn, got *rpc.Request) { r = got },
	}, rpc.Options{})
	if err := c.Run(t.Context()); err != nil || r.Context().Err() != nil {
		t.Fatalf("Run: %v, context: %v", err, r.Context().Err())
	}
	err := errors.Join(r.Reply(json.RawMessage(`{}`)), c.Close())
	if want := `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"; err != nil || out.String() != want {
		t.Fatalf("%v, wrote %s", err, out.String())
	}
}

func TestTextSplitAtEveryByte(t *testing.T) {
	t.Parallel()
	line := `{"jsonrpc":"2.0","id":1,"method":"echo","params":["日本語😀🏴‍☠️"]}` + "\n"
	want := `{"jsonrpc":"2.0","id":1,"result":["日本語😀🏴‍☠️"]}` + "\n"
	near, far := net.Pipe()
	serve(t, far, handler{request: echo}, rpc.Options{})
	defer func() { _ = near.Close() }()
	got := make([]byte, len(want))
	for cut := 1; cut < len(line); cut++ {
		for _, part := range []string{line[:cut], line[cut:]} {
			if _, err := io.WriteString(near, part); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(near, got); err != nil || string(got) != want {
			t.Fatalf("cut at %d: %s %v", cut, got, err)
		}
	}
}

func TestLargeLines(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, nil, handler{request: echo})
	for _, mib := range []int{1, 8, 31} {
		params := json.RawMessage(`["` + strings.Repeat("y", mib<<20) + `"]`)
		got, err := a.Call(t.Context(), "echo", params)
		if err != nil || !bytes.Equal(got, params) {
			t.Fatalf("%d MiB: %d bytes, %v", mib, len(got), err)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	c := rpc.NewConn(far, far, nil, rpc.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	cancel()
	if err := wait(t, ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run: %v", err)
	}
	_ = c.Close()
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":"rf-1","result":1}`, "[]\n{}\r\n\n\xff", `{"jsonrpc":"2.0","id":1,"error":7}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		out := exchange(t, string(input), handler{request: echo}, rpc.Options{MaxLineBytes: 300})
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) || !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":`) {
				t.Fatalf("%q was answered %q", input, line)
			}
		}
	})
}

func BenchmarkNotify(b *testing.B) {
	params := json.RawMessage(`{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hello"}}}`)
	near, far := net.Pipe()
	seen := make(chan struct{}, 1)
	n := 0
	c := rpc.NewConn(far, far, handler{notify: func(context.Context, *rpc.Conn, string, json.RawMessage) {
		if n++; n == b.N {
			seen <- struct{}{}
		}
	}}, rpc.Options{})
	go func() { _ = c.Run(b.Context()) }()
	s := rpc.NewConn(near, near, nil, rpc.Options{})
	b.ResetTimer()
	for range b.N {
		if err := s.Notify("session/update", params); err != nil {
			b.Fatal(err)
		}
	}
	<-seen
	b.StopTimer()
	_, _ = s.Close(), c.Close()
}

// BenchmarkBarePipe moves the same bytes with nothing around them.
func BenchmarkBarePipe(b *testing.B) {
	near, far := net.Pipe()
	line := bytes.Repeat([]byte("x"), 160)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, far)
	}()
	for b.Loop() {
		if _, err := near.Write(line); err != nil {
			b.Fatal(err)
		}
	}
	_ = near.Close()
	<-done
}

// A peer that asks on and never reads is not read from any more: its answers don't take all
// memory. When it reads, everything goes on.
func TestUnreadAnswersAreBounded(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	serve(t, here, handler{}, rpc.Options{})
	id := strings.Repeat("x", 1<<20)
	const n = 200
	var sent atomic.Int64
	wrote := make(chan error, 1)
	go func() {
		for range n {
			if _, err := fmt.Fprintf(there, `{"jsonrpc":"2.0","id":%q,"method":"nope"}`+"\n", id); err != nil {
				wrote <- err
				return
			}
			sent.Add(1)
		}
		wrote <- nil
	}()
	last := int64(-1)
	natstest.Eventually(t, patience, "it is not read from", func() (bool, any) {
		now := sent.Load()
		still := now == last && now > 30
		last = now
		return still, now
	})
	if last > 64 {
		t.Errorf("%d MiB of answers wait", last)
	}
	answers := bufio.NewReader(there)
	for range n {
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait(t, wrote); err != nil {
		t.Error(err)
	}
}
