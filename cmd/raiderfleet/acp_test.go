package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"raiderfleet/internal/devfleet"
)

// editor speaks ACP with a process, a line at a time.
type editor struct {
	*process
	id int
}

type message struct {
	Version string          `json:"jsonrpc"`
	ID      *int            `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// send sends a request and returns its id.
func (e *editor) send(method, params string) int {
	e.t.Helper()
	e.id++
	line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", e.id, method, params)
	if _, err := io.WriteString(e.stdin, line); err != nil {
		e.t.Fatalf("%q took no %s: %v; stderr:\n%s", e.args, method, err, e.stderr)
	}
	return e.id
}

// messages are all lines so far; anything else on stdout fails the test.
func (e *editor) messages() []message {
	e.t.Helper()
	var out []message
	text := e.stdout.String()
	for _, line := range strings.SplitAfter(text, "\n") {
		if !strings.HasSuffix(line, "\n") {
			break // not whole yet, or the end
		}
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Version != "2.0" {
			e.t.Fatalf("not of the protocol: %q", line)
		}
		out = append(out, m)
	}
	return out
}

// answer waits for the response with that id.
func (e *editor) answer(id int) message {
	e.t.Helper()
	var found message
	// Not process.poll: one that has ended may have answered.
	poll(e.t, fmt.Sprintf("answer %d of %q", id, e.args), func() bool {
		for _, m := range e.messages() {
			if m.Method == "" && m.ID != nil && *m.ID == id {
				found = m
				return true
			}
		}
		select {
		case <-e.ended:
			e.t.Fatalf("%q ended with %d without answer %d; stderr:\n%s", e.args, e.code, id, e.stderr)
		default:
		}
		return false
	})
	return found
}

// call is send and answer without an error.
func (e *editor) call(method, params string) json.RawMessage {
	e.t.Helper()
	m := e.answer(e.send(method, params))
	if m.Error != nil {
		e.t.Fatalf("%s: %s", method, m.Error)
	}
	return m.Result
}

// said is the agent's text so far.
func (e *editor) said() string {
	e.t.Helper()
	var b strings.Builder
	for _, m := range e.messages() {
		var p struct {
			Update struct {
				Kind    string `json:"sessionUpdate"`
				Content struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"update"`
		}
		if m.Method == "session/update" && json.Unmarshal(m.Params, &p) == nil && p.Update.Kind == "agent_message_chunk" {
			b.WriteString(p.Update.Content.Text)
		}
	}
	return b.String()
}

// open starts `acp`, initializes it and opens a session.
func (h *home) open(args ...string) (*editor, string) {
	h.t.Helper()
	e := &editor{process: h.start(append([]string{"acp"}, args...)...)}
	e.call("initialize", `{"protocolVersion":1}`)
	return e, e.newSession(h.dir)
}

func (e *editor) newSession(cwd string) string {
	e.t.Helper()
	var r struct {
		Session string `json:"sessionId"`
	}
	if err := json.Unmarshal(e.call("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, cwd)), &r); err != nil {
		e.t.Fatal(err)
	}
	return r.Session
}

func promptParams(session, text string) string {
	return fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, session, text)
}

// eof ends the input and waits for the end of the process.
func (e *editor) eof() {
	e.t.Helper()
	if err := e.stdin.Close(); err != nil {
		e.t.Fatal(err)
	}
	if code := e.wait(); code != 0 {
		e.t.Errorf("%q ended with %d; stderr:\n%s", e.args, code, e.stderr)
	}
	e.messages() // all of it was protocol
}

// Two editors at once start one fleet, share its sessions, and it leaves when they have.
func TestACPStartsOneDevFleet(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const editors = 4
	var all [editors]*editor
	var sessions [editors]string
	var starting sync.WaitGroup
	for i := range editors {
		all[i] = &editor{process: h.start("acp", "--dev", "--leave-after", "500ms", "--log-level", "debug")}
		all[i].id = 1 // that of initialize
		starting.Go(func() {
			// Fatal is for the test's own goroutine only: nothing here may fail it.
			_, _ = io.WriteString(all[i].stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`+"\n")
		})
	}
	starting.Wait()
	for i, e := range all {
		e.answer(1)
		sessions[i] = e.newSession(h.dir)
		e.call("session/prompt", promptParams(sessions[i], fmt.Sprintf("echo from %d", i)))
		if got := e.said(); got != fmt.Sprintf("from %d", i) {
			t.Errorf("editor %d was told %q", i, got)
		}
	}
	all[0].call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, sessions[1], h.dir))
	if got := all[0].said(); got != "from 0from 1" {
		t.Errorf("with the other's session loaded it was told %q", got)
	}
	for _, e := range all {
		e.eof()
	}
	// One after another, too, even if the fleet has left in between.
	e, _ := h.open("--dev", "--leave-after", "500ms")
	e.call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, sessions[2], h.dir))
	if got := e.said(); got != "from 2" {
		t.Errorf("a later editor was told %q", got)
	}
	ready, err := devfleet.ReadReady(filepath.Join(h.devDir(), "ready.json"))
	if err != nil {
		t.Fatal(err)
	}
	e.eof()
	poll(t, "the fleet's end", func() bool {
		_, err := devfleet.ReadReady(filepath.Join(h.devDir(), "ready.json"))
		return err != nil && !alive(ready.PID)
	})
}

// Without --dev it is the dev fleet too when no NATS is configured.
func TestACPJoinsTheDevFleet(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	_, ready := h.serve("dev")
	e, session := h.open("--raider", "3demo")
	e.call("session/prompt", promptParams(session, "echo hi"))
	if got := e.said(); got != "hi" {
		t.Errorf("it was told %q", got)
	}
	e.eof()
	if !alive(ready.PID) {
		t.Error("the fleet left with the editor")
	}
	p := h.run("acp", "--raider", "nobody")
	p.want(1, "", "nobody")
}

func TestACPEndOfInput(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.serve("dev")

	t.Run("what was read is answered", func(t *testing.T) {
		t.Parallel()
		e, session := (&home{t, h.dir, h.env}).open()
		var ids []int
		for range 3 {
			ids = append(ids, e.send("session/prompt", promptParams(session, "echo x")))
		}
		e.eof()
		for _, id := range ids {
			if m := e.answer(id); m.Error != nil || !strings.Contains(string(m.Result), "end_turn") {
				t.Errorf("answer %d: %s %s", id, m.Result, m.Error)
			}
		}
		if got := e.said(); got != "xxx" {
			t.Errorf("it was told %q", got)
		}
	})
	t.Run("a long turn is cancelled", func(t *testing.T) {
		t.Parallel()
		e, session := (&home{t, h.dir, h.env}).open()
		id := e.send("session/prompt", promptParams(session, "sleep 100"))
		begin := time.Now()
		e.eof()
		if m := e.answer(id); !strings.Contains(string(m.Result), "cancelled") {
			t.Errorf("answer: %s %s", m.Result, m.Error)
		}
		if took := time.Since(begin); took < 4*time.Second || took > 30*time.Second {
			t.Errorf("it took %v, want 5 s", took)
		}
	})
	t.Run("unless it is to wait", func(t *testing.T) {
		t.Parallel()
		e, session := (&home{t, h.dir, h.env}).open("--wait")
		id := e.send("session/prompt", promptParams(session, "sleep 7"))
		e.eof()
		if m := e.answer(id); !strings.Contains(string(m.Result), "end_turn") {
			t.Errorf("answer: %s %s", m.Result, m.Error)
		}
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		p := (&home{t, h.dir, h.env}).run("acp")
		p.want(0, "")
	})
}
