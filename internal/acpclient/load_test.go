package acpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"raiderfleet/internal/rpc"
)

// loader is an agent that has one session.
type loader struct{ t *testing.T }

func (l loader) HandleNotification(context.Context, *rpc.Conn, string, json.RawMessage) {}

func (l loader) HandleRequest(_ context.Context, c *rpc.Conn, r *rpc.Request) {
	if r.Method != "session/load" || !strings.Contains(string(r.Params), `"mcpServers":[`) {
		l.t.Errorf("asked for %s %s", r.Method, r.Params)
	}
	if !strings.Contains(string(r.Params), `"sessionId":"s1"`) {
		if err := r.ReplyError(&rpc.Error{Code: rpc.CodeNotFound, Message: "no such session"}); err != nil {
			l.t.Error(err)
		}
		return
	}
	for _, kind := range []string{"user", "agent"} {
		update := `{"sessionId":"s1","update":{"sessionUpdate":"` + kind + `_message_chunk","content":{"type":"text","text":"by ` + kind + `\nagain"}}}`
		if err := c.Notify("session/update", json.RawMessage(update)); err != nil {
			l.t.Error(err)
		}
	}
	if err := r.Reply(json.RawMessage(`{}`)); err != nil {
		l.t.Error(err)
	}
}

// The conversation is shown before LoadSession returns, with what users said.
func TestLoadSession(t *testing.T) {
	t.Parallel()
	ours := serve(t, loader{t})
	var out, notes bytes.Buffer
	p := &Printer{Out: &out, Notes: &notes, Users: true}
	c := New(ours, ours, Options{Update: p.Update})
	done := make(chan error, 1)
	go func() { done <- c.Run(context.WithoutCancel(t.Context())) }()
	if err := c.LoadSession(t.Context(), "s1", "/tmp", nil); err != nil {
		t.Fatal(err)
	}
	p.Update(json.RawMessage(`{"update":{"sessionUpdate":"session_info_update","_meta":{"raiderfleet/note":{"text":"reset"}}}}`))
	p.Update(json.RawMessage(`{"update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"more"}}}`))
	if out.String() != "> by user\n> again\nby agent\nagain\n> more\n" || notes.String() != "note: reset\n" {
		t.Errorf("shown %q and %q", out.String(), notes.String())
	}
	if err := c.LoadSession(t.Context(), "s2", "/tmp", json.RawMessage(`[{}]`)); err == nil || !strings.Contains(err.Error(), "no such session") {
		t.Errorf("an unknown session: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("reading ended with %v", err)
	}
}
