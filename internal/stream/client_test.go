//go:build unix

package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raiderfleet/internal/rpc"
)

const patience = 30 * time.Second

// client is the worker's side of one adapter.
type client struct {
	conn   *rpc.Conn
	agent  *agent
	near   net.Conn
	stderr *safeBuffer
	notes  chan note
	asked  chan json.RawMessage          // every permission request
	answer func(r *rpc.Request)          // nil leaves it open
	exit   chan int                      // of serve
	gate   atomic.Pointer[chan struct{}] // where set, notifications wait for it to close
	t      *testing.T
}

type note struct {
	method string
	params json.RawMessage
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (c *client) HandleRequest(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
	valid(c.t, r.Method, r.Params)
	c.asked <- r.Params
	if c.answer != nil {
		c.answer(r)
	}
}

func (c *client) HandleNotification(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
	if method == "session/update" && len(params) < 1<<20 {
		valid(c.t, method, params)
	}
	if gate := c.gate.Load(); gate != nil {
		<-*gate
	}
	c.notes <- note{method, params}
}

// selects answers every permission request with an option.
func selects(option string) func(*rpc.Request) {
	return func(r *rpc.Request) {
		_ = r.Reply(map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": option}})
	}
}

// start serves a raider in this process, over a pipe.
func start(t *testing.T, config Config, answer func(*rpc.Request)) *client {
	t.Helper()
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	c := &client{
		near: near, stderr: &safeBuffer{}, notes: make(chan note, 10000), asked: make(chan json.RawMessage, 100),
		answer: answer, exit: make(chan int, 1), t: t,
	}
	c.agent = newAgent(config, "", c.stderr, slog.New(slog.NewTextHandler(c.stderr, nil)))
	c.agent.stopGrace = 100 * time.Millisecond
	go func() {
		c.exit <- c.agent.serve(t.Context(), far, struct{ io.Writer }{far})
		_ = far.Close()
	}()
	c.conn = rpc.NewConn(near, near, c, rpc.Options{})
	ended := make(chan error, 1)
	go func() { ended <- c.conn.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = c.conn.Close()
		<-ended //nolint:errcheck // only that it has ended
		select {
		case <-c.exit:
		case <-time.After(patience):
			t.Error("the adapter did not end")
		}
	})
	valid(t, "result:initialize", c.call("initialize", `{"protocolVersion":1}`))
	return c
}

func (c *client) call(method, params string) json.RawMessage {
	c.t.Helper()
	got, err := c.conn.Call(c.t.Context(), method, json.RawMessage(params))
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	return got
}

func (c *client) open(cwd string) string {
	c.t.Helper()
	got := c.call("session/new", `{"cwd":`+quote(cwd)+`,"mcpServers":[]}`)
	valid(c.t, "result:session/new", got)
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(got, &r); err != nil {
		c.t.Fatal(err)
	}
	return r.SessionID
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func promptParams(session, text string) json.RawMessage {
	return json.RawMessage(`{"sessionId":` + quote(session) + `,"prompt":[{"type":"text","text":` + quote(text) + `}]}`)
}

// end is how a turn ended: its stop reason, or "error: " and its text.
func end(t *testing.T, result json.RawMessage, err error) string {
	t.Helper()
	if fault, ok := errors.AsType[*rpc.Error](err); ok {
		return "error: " + fault.Message
	}
	if err != nil {
		return "broken: " + err.Error()
	}
	valid(t, "result:session/prompt", result)
	var r struct {
		StopReason string `json:"stopReason"`
	}
	_ = json.Unmarshal(result, &r)
	return r.StopReason
}

// prompt runs a turn and gives how it ended and what came before that.
func (c *client) prompt(session, text string) (string, []note) {
	c.t.Helper()
	result, err := c.conn.Call(c.t.Context(), "session/prompt", promptParams(session, text))
	return end(c.t, result, err), c.seen()
}

// begin starts a turn; its end comes on the channel.
func (c *client) begin(session, text string) <-chan string {
	ended := make(chan string, 1)
	go func() {
		result, err := c.conn.Call(context.Background(), "session/prompt", promptParams(session, text))
		ended <- end(c.t, result, err)
	}()
	return ended
}

func (c *client) seen() []note {
	var all []note
	for len(c.notes) > 0 {
		all = append(all, <-c.notes)
	}
	return all
}

// spoken joins the texts of the message chunks.
func spoken(notes []note) string {
	var all strings.Builder
	for _, n := range notes {
		var p struct {
			Update struct {
				Kind    string `json:"sessionUpdate"`
				Content struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"update"`
		}
		if json.Unmarshal(n.params, &p) == nil && p.Update.Kind == "agent_message_chunk" {
			all.WriteString(p.Update.Content.Text)
		}
	}
	return all.String()
}

// wait takes from a channel, in time.
func wait[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// untilSaid waits for a message chunk with that text.
func (c *client) untilSaid(text string) {
	c.t.Helper()
	for {
		if strings.Contains(spoken([]note{wait(c.t, c.notes)}), text) {
			return
		}
	}
}

// shell is a raider whose prompt is a script.
func shell() Config { return Config{Command: []string{"sh", "-c", "{prompt}"}} }

// demoRaider is the demo in its stream form.
func demoRaider(t *testing.T) Config {
	t.Helper()
	return Config{Command: []string{
		os.Args[0], "demo", "--state=" + t.TempDir(), "--stream-json", "--session={session}", "--root={cwd}", "--", "{prompt}",
	}}
}

// ev is a line of a script that writes an event.
func ev(fields string) string { return "printf '%s\\n' '{\"version\":1," + fields + "}'\n" }

const done = `"type":"run.finished","status":"completed"`
