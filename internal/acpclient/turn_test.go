package acpclient

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"raiderfleet/internal/rpc"
)

// agent is a scripted ACP agent. Its prompt function answers session/prompt.
type agent struct {
	prompt func(c *rpc.Conn, r *rpc.Request)

	mu        sync.Mutex // guards the rest
	seen      []string
	cancelled chan struct{}
}

func (a *agent) HandleRequest(_ context.Context, c *rpc.Conn, r *rpc.Request) {
	a.mu.Lock()
	a.seen = append(a.seen, r.Method+" "+string(r.Params))
	a.mu.Unlock()
	var err error
	switch r.Method {
	case "initialize":
		err = r.Reply(json.RawMessage(`{"protocolVersion":1}`))
	case "session/new":
		err = r.Reply(json.RawMessage(`{"sessionId":"s1"}`))
	case "session/prompt":
		go a.prompt(c, r)
	}
	if err != nil {
		panic(err)
	}
}

func (a *agent) HandleNotification(_ context.Context, _ *rpc.Conn, method string, _ json.RawMessage) {
	if method == "session/cancel" {
		close(a.cancelled)
	}
}

// serve runs the agent and returns the client's end.
func (a *agent) serve(t *testing.T) net.Conn {
	t.Helper()
	a.cancelled = make(chan struct{})
	return serve(t, a)
}

// serve runs an agent and returns the client's end.
func serve(t *testing.T, h rpc.Handler) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	conn := rpc.NewConn(theirs, theirs, h, rpc.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := conn.Run(context.WithoutCancel(t.Context())); err != nil {
			t.Logf("agent: %v", err)
		}
	}()
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Logf("agent: %v", err)
		}
		<-done
	})
	return ours
}

func TestTurn(t *testing.T) {
	t.Parallel()
	a := &agent{prompt: func(c *rpc.Conn, r *rpc.Request) {
		for _, n := range []string{"1", "2"} {
			if err := c.Notify("session/update", json.RawMessage(`{"n":`+n+`}`)); err != nil {
				t.Error(err)
			}
		}
		raw, err := c.Call(t.Context(), "session/request_permission", json.RawMessage(`{"sessionId":"s1","options":[{"optionId":"yes","kind":"allow_once"}]}`))
		if err != nil || string(raw) != `{"outcome":{"optionId":"yes","outcome":"selected"}}` {
			t.Errorf("the permission was answered %s, %v", raw, err)
		}
		if _, err := c.Call(t.Context(), "fs/read_text_file", json.RawMessage(`{}`)); err == nil {
			t.Error("a method that is not offered was answered")
		}
		if err := r.Reply(json.RawMessage(`{"stopReason":"end_turn"}`)); err != nil {
			t.Error(err)
		}
	}}
	var updates []string
	r, err := Turn{Cwd: "/tmp", Raider: "1bjorn", Text: "hi"}.Do(t.Context(), a.serve(t), Options{
		Update: func(p json.RawMessage) { updates = append(updates, string(p)) }, Permission: Allow,
	})
	if err != nil || r.StopReason != StopEndTurn || string(r.Raw) != `{"stopReason":"end_turn"}` {
		t.Fatalf("got %+v, %v", r, err)
	}
	if !slices.Equal(updates, []string{`{"n":1}`, `{"n":2}`}) {
		t.Errorf("updates: %q", updates)
	}
	all := strings.Join(a.seen, "\n")
	for _, want := range []string{`"protocolVersion":1`, `"cwd":"/tmp"`, `"mcpServers":[]`, `"raiderfleet/raider":"1bjorn"`, `"text":"hi"`} {
		if !strings.Contains(all, want) {
			t.Errorf("%s was not sent:\n%s", want, all)
		}
	}
}

func TestTurnIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	a := &agent{}
	a.prompt = func(_ *rpc.Conn, r *rpc.Request) {
		interrupt()
		<-a.cancelled
		if err := r.Reply(json.RawMessage(`{"stopReason":"cancelled"}`)); err != nil {
			t.Error(err)
		}
	}
	r, err := Turn{Cwd: "/", Text: "x"}.Do(ctx, a.serve(t), Options{})
	if err != nil || r.StopReason != StopCancelled {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestTurnFails(t *testing.T) {
	t.Parallel()
	a := &agent{prompt: func(_ *rpc.Conn, r *rpc.Request) {
		if err := r.ReplyError(&rpc.Error{Code: -32000, Message: "the disk is full"}); err != nil {
			t.Error(err)
		}
	}}
	_, err := Turn{Cwd: "/", Text: "x"}.Do(t.Context(), a.serve(t), Options{})
	var fault *rpc.Error
	if !errors.As(err, &fault) || fault.Message != "the disk is full" {
		t.Errorf("got %v", err)
	}
}

func TestTurnLosesItsConnection(t *testing.T) {
	t.Parallel()
	a := &agent{prompt: func(c *rpc.Conn, _ *rpc.Request) {
		if err := c.Close(); err != nil {
			t.Logf("close: %v", err)
		}
	}}
	_, err := Turn{Cwd: "/", Text: "x"}.Do(t.Context(), a.serve(t), Options{})
	if err == nil || !strings.Contains(err.Error(), "the front door closed the connection") {
		t.Errorf("got %v", err)
	}
}
