package frontdoor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// client is an ACP client at a front door. What it receives is kept in order.
type client struct {
	t    *testing.T
	conn *rpc.Conn
	pipe net.Conn
	stop func() // closes the connection and waits for the front door's end of it

	held sync.Mutex // held while nothing is to be read

	mu     sync.Mutex // guards the rest
	log    []string
	change chan struct{}
	asked  []*rpc.Request
}

// hold makes the client read nothing until release.
func (c *client) hold() {
	c.held.Lock()
}

func (c *client) release() { c.held.Unlock() }

func (c *client) add(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, line)
	close(c.change)
	c.change = make(chan struct{})
}

// HandleRequest implements rpc.Handler.
func (c *client) HandleRequest(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
	c.mu.Lock()
	c.asked = append(c.asked, r)
	c.mu.Unlock()
	context.AfterFunc(r.Context(), func() {
		if peerCancelled(r) {
			c.add("withdrawn")
		}
	})
	c.add("ask " + r.Method)
}

// HandleNotification implements rpc.Handler. Updates are seen by the tap.
func (c *client) HandleNotification(context.Context, *rpc.Conn, string, json.RawMessage) {}

// tap notes what comes in the order in which it is on the wire.
type tap struct {
	c    *client
	line []byte
}

// Read implements io.Reader.
func (p *tap) Read(b []byte) (int, error) {
	n, err := p.c.pipe.Read(b)
	for _, char := range b[:n] {
		if char != '\n' {
			p.line = append(p.line, char)
			continue
		}
		p.c.held.Lock()
		p.c.held.Unlock() //nolint:staticcheck // waits for release
		p.c.saw(p.line)
		p.line = p.line[:0]
	}
	return n, err
}

// Close implements io.Closer.
func (p *tap) Close() error { return p.c.pipe.Close() }

func (c *client) saw(line []byte) {
	var m struct {
		ID     any             `json:"id"`
		Method string          `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  *rpc.Error      `json:"error"`
		Params struct {
			Update struct {
				Kind    string          `json:"sessionUpdate"`
				Content json.RawMessage `json:"content"`
				Meta    json.RawMessage `json:"_meta"`
			} `json:"update"`
		} `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		c.t.Errorf("line %q: %v", line, err)
	}
	if id, ok := m.ID.(string); ok && m.Method == "" {
		if name, ok := strings.CutPrefix(id, promptID); ok {
			if m.Error != nil {
				c.add("end " + name + " " + m.Error.Error())
			} else {
				c.add("end " + name + " " + string(m.Result))
			}
		}
	}
	if m.Method != "session/update" {
		return
	}
	var content struct {
		Text string `json:"text"`
	}
	if u := m.Params.Update; len(u.Content) > 0 {
		_ = json.Unmarshal(u.Content, &content)
	}
	switch m.Params.Update.Kind {
	case "agent_message_chunk":
		c.add("agent " + content.Text)
	case "user_message_chunk":
		c.add("user " + content.Text)
	case "session_info_update":
		c.add("info " + string(m.Params.Update.Meta))
	default:
		c.add(m.Params.Update.Kind + " " + content.Text)
	}
}

// promptID begins the ids of prompts, which are written beside the connection's own.
const promptID = "prompt-"

// connect opens a connection that has been initialized.
func connect(t *testing.T, f *FrontDoor, o ConnOptions) *client {
	t.Helper()
	mine, theirs := net.Pipe()
	return connectOver(t, f, o, mine, theirs)
}

// connectOver is connect over a connection that the test made.
func connectOver(t *testing.T, f *FrontDoor, o ConnOptions, mine, theirs net.Conn) *client {
	t.Helper()
	c := &client{t: t, pipe: mine, change: make(chan struct{})}
	c.conn = rpc.NewConn(&tap{c: c}, mine, c, rpc.Options{IDPrefix: "c-"})
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { _ = c.conn.Run(ctx) })
	running.Go(func() {
		if err := f.Serve(ctx, theirs, theirs, o); err != nil && ctx.Err() == nil {
			t.Logf("Serve: %v", err)
		}
	})
	c.stop = sync.OnceFunc(func() {
		_ = c.conn.Close()
		_ = mine.Close()
		running.Wait()
		cancel()
	})
	t.Cleanup(func() { cancel(); c.stop() })
	c.call("initialize", `{"protocolVersion":1}`)
	return c
}

func (c *client) try(method, params string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.conn.Call(ctx, method, json.RawMessage(params))
}

func (c *client) call(method, params string) json.RawMessage {
	c.t.Helper()
	result, err := c.try(method, params)
	if err != nil {
		c.t.Fatalf("%s: %v; received %s", method, err, c.received())
	}
	return result
}

// session opens a session.
func (c *client) session(raider string) subjects.SessionID {
	c.t.Helper()
	var r struct {
		Session subjects.SessionID `json:"sessionId"`
	}
	if err := json.Unmarshal(c.call("session/new", fmt.Sprintf(`{"cwd":"/w","mcpServers":[],"raiderName":%q}`, raider)), &r); err != nil {
		c.t.Fatal(err)
	}
	return r.Session
}

// prompt sends a prompt; its response goes into the log as "end <name> …".
func (c *client) prompt(s subjects.SessionID, name, text string) {
	c.t.Helper()
	line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"session/prompt","params":%s}`+"\n", promptID+name, promptParams(s, text))
	if _, err := c.pipe.Write([]byte(line)); err != nil {
		c.t.Fatal(err)
	}
}

func promptParams(s subjects.SessionID, text string) string {
	return fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, s, text)
}

func (c *client) cancelSession(s subjects.SessionID) {
	c.t.Helper()
	if err := c.conn.Notify("session/cancel", json.RawMessage(fmt.Sprintf(`{"sessionId":%q}`, s))); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "\n" + strings.Join(c.log, "\n")
}

// await blocks until a received line begins with prefix, and returns it.
func (c *client) await(prefix string) string {
	c.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		change := c.change
		for _, line := range c.log {
			if strings.HasPrefix(line, prefix) {
				c.mu.Unlock()
				return line
			}
		}
		c.mu.Unlock()
		select {
		case <-change:
		case <-deadline.C:
			c.t.Fatalf("nothing came that begins with %q; received %s", prefix, c.received())
		}
	}
}

// want compares all that was received, without what tells places.
func (c *client) want(lines ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for _, line := range c.log {
		if !strings.HasPrefix(line, "info ") {
			got = append(got, line)
		}
	}
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		c.t.Errorf("received:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}
