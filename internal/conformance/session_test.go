package conformance

import (
	"errors"
	"strings"
	"testing"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// load is session/load of a session that was made by another client of the test.
func (c *client) load(session, cwd string) message {
	c.tb.Helper()
	return c.call("session/load", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(cwd)+`,"mcpServers":[]}`)
}

func TestSessionParams(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, method, params string
		code                 int64
		says                 string
	}{
		{"relative cwd", "session/new", `{"cwd":"here","mcpServers":[]}`, -32602, "cwd"},
		{"no cwd", "session/new", `{"mcpServers":[]}`, -32602, "cwd"},
		{"bad MCP server", "session/new", `{"cwd":"/","mcpServers":[{"name":"a","command":"/x","args":[],"env":[]},{"name":7}]}`, -32602, "1"},
		{"unknown raider", "session/new", `{"cwd":"/","mcpServers":[],"raiderName":"nobody"}`, -32602, "demo"},
		{"unknown raider in _meta", "session/new", `{"cwd":"/","mcpServers":[],"_meta":{"raiderfleet/raider":"nobody"}}`, -32602, "other"},
		{"seat of an unknown raider", "session/new", `{"cwd":"/","mcpServers":[],"raiderName":"1nobody"}`, -32602, "demo"},
		{"prompt to nobody", "session/prompt", `{"sessionId":"nobody","prompt":[{"type":"text","text":"x"}]}`, -32002, ""},
		{"load of nobody", "session/load", `{"sessionId":"nobody","cwd":"/","mcpServers":[]}`, -32002, ""},
		{"blank prompt", "session/prompt", `{"sessionId":"SESSION","prompt":[{"type":"text","text":"  \n"}]}`, -32602, ""},
		{"no blocks", "session/prompt", `{"sessionId":"SESSION","prompt":[]}`, -32602, ""},
		{"prompt as text", "session/prompt", `{"sessionId":"SESSION","prompt":"x"}`, -32602, ""},
		{"no prompt", "session/prompt", `{"sessionId":"SESSION"}`, -32602, ""},
		{"image for a raider without images", "session/prompt", `{"sessionId":"SESSION","prompt":[{"type":"image","data":"eA==","mimeType":"image/png"}]}`, -32602, "image"},
		{"load with another cwd", "session/load", `{"sessionId":"SESSION","cwd":"/somewhere/else","mcpServers":[]}`, -32602, "cwd"},
	}
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		for _, tc := range cases {
			m := c.call(tc.method, strings.ReplaceAll(tc.params, "SESSION", session))
			if m.Error == nil {
				t.Errorf("%s: got result %s", tc.name, m.Result)
				continue
			}
			got := decode[fault](m.Error)
			if got.Code != tc.code || !strings.Contains(got.Message, tc.says) {
				t.Errorf("%s: got %s, want %d with %q", tc.name, m.Error, tc.code, tc.says)
			}
			if tc.code == -32002 && !strings.Contains(string(got.Data), `"sessionId":"nobody"`) {
				t.Errorf("%s: data is %s", tc.name, got.Data)
			}
		}
		// mcpServers may be missing; both ways to name a raider.
		for _, params := range []string{`{"cwd":"/"}`, `{"cwd":"/","raiderName":"other"}`, `{"cwd":"/","raiderName":"3demo"}`} {
			if m := c.call("session/new", params); m.Error != nil {
				t.Errorf("session/new %s: %s", params, m.Error)
			}
		}
		m, _ := c.turn(session, "echo fine")
		wantStop(t, m, "end_turn")
	})
}

// A slot has one run at a time, whichever sessions its prompts come from.
func TestSlot(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		slot := map[string]string{"pipe": "1demo", "tcp": "2demo", "websocket": "3demo", "http": "4demo"}[transport]
		a, b := c.session(slot), c.session(slot)
		from := c.count()
		first := c.prompt(a, "sleep 4") // says so after each second
		c.await(from, "a chunk of the first session", func(m message) bool { return chunkOf(m, a) })
		second := c.prompt(b, "echo b")
		// Told its place it has been accepted: before the third, which is another session's.
		c.await(from, "the waiting prompt's place", func(m message) bool {
			return m.Method == "session/update" && strings.Contains(string(m.Params), "session_info_update") && strings.Contains(string(m.Params), b)
		})
		third := c.prompt(a, "echo a")
		_, firstEnd := c.nthAnswer(first, 0)
		m, secondEnd := c.nthAnswer(second, 0)
		wantStop(t, m, "end_turn")
		m, thirdEnd := c.nthAnswer(third, 0)
		wantStop(t, m, "end_turn")
		if firstEnd > secondEnd || secondEnd > thirdEnd {
			t.Fatalf("the turns ended at lines %d, %d, %d", firstEnd, secondEnd, thirdEnd)
		}
		for _, m := range c.received(from, firstEnd) {
			if chunkOf(m, b) {
				t.Error("the second session ran during the first one's turn")
			}
		}
		for _, m := range c.received(secondEnd, thirdEnd) {
			if chunkOf(m, b) {
				t.Error("the second session's updates came after its response")
			}
		}
		for s, want := range map[string]string{a: "a", b: "b"} {
			var own []message
			for _, m := range c.received(firstEnd, thirdEnd) {
				if chunkOf(m, s) {
					own = append(own, m)
				}
			}
			if got := text(own, "agent_message_chunk"); got != want {
				t.Errorf("session %s said %q, want %q", s, got, want)
			}
		}
	})
}

// chunkOf says whether m is text of the agent for that session.
func chunkOf(m message, session string) bool {
	if m.Method != "session/update" {
		return false
	}
	u := decode[update](m.Params)
	return u.Session == session && u.Update.Kind == "agent_message_chunk"
}

// A client goes away in mid-turn; one at another front door loads the session and
// sees all of it, what was, what comes, and what it does itself.
func TestLoadInMidTurn(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(s *settings) { s.doors = 2 }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		gone := f.client(t, transport)
		session, from := gone.session(""), gone.count()
		gone.turn(session, "echo before. ")
		gone.prompt(session, "sleep 3")
		gone.await(from, "a chunk of sleep", func(m message) bool {
			return chunkOf(m, session) && text([]message{m}, "agent_message_chunk") != "before. "
		})
		gone.close()

		c := newClient(t, f.dial(t, transport, 1))
		c.initialize()
		m := c.load(session, gone.cwd(session))
		loaded := c.count()
		if m.Error != nil || string(m.Result) == "null" {
			t.Fatalf("session/load: %s %s", m.Result, m.Error)
		}
		if got := text(c.received(0, loaded), "user_message_chunk"); got != "echo before. sleep 3" {
			t.Errorf("the replay has the user's messages %q", got)
		}
		if got := text(c.received(0, loaded), "agent_message_chunk"); !strings.HasPrefix(got, "before. ") {
			t.Errorf("the replay has the agent's text %q", got)
		}
		// It waits for the running turn; then the same once more, to compare with.
		m, at := c.nthAnswer(c.prompt(session, "echo | "), 0)
		wantStop(t, m, "end_turn")
		seen := text(c.received(0, at), "agent_message_chunk")
		_, updates := c.turn(session, "sleep 3")
		if want := "before. " + text(updates, "agent_message_chunk") + "| "; seen != want {
			t.Errorf("the second client saw %q, want %q", seen, want)
		}
		// A prompt of a session that this connection has not attached attaches it.
		third := f.client(t, transport)
		m, updates = third.turn(session, "echo third")
		wantStop(t, m, "end_turn")
		if got := text(updates, "agent_message_chunk"); got != "third" {
			t.Errorf("the third client got %q", got)
		}
		c.await(at, "the third client's turn at the second", func(m message) bool {
			return text([]message{m}, "agent_message_chunk") == "third"
		})
		if got := text(c.received(at, -1), "user_message_chunk"); got != "echo third" {
			t.Errorf("the second client saw the user's messages %q", got)
		}
	})
}

// What is not spoken yet says so, and is not offered.
func TestNotYet(t *testing.T) {
	t.Parallel()
	methods := []string{
		"authenticate", "logout",
	}
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := newClient(t, f.dial(t, transport, 0))
		hello := c.initialize()
		got := decode[struct {
			Agent struct {
				Session map[string]any `json:"sessionCapabilities"`
			} `json:"agentCapabilities"`
			Auth []any `json:"authMethods"`
		}](hello.Result)
		for _, name := range []string{"fork"} {
			if got.Agent.Session[name] != nil {
				t.Errorf("initialize offers %s: %s", name, hello.Result)
			}
		}
		if len(got.Auth) != 0 {
			t.Errorf("initialize offers to authenticate: %s", hello.Result)
		}
		session := c.session("")
		for _, method := range methods {
			wantFault(t, c.call(method, `{"sessionId":`+quoted(session)+`}`), -32601, "")
		}
	})
}

// Close ends what runs and what waits, then the raider, and is answered after all of it.
func TestClose(t *testing.T) {
	t.Parallel()
	var journal string
	onEachKind(t, func(s *settings) { journal = s.journaled(t) }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		from := c.count()
		running, waiting := c.prompt(session, "sleep 60"), c.prompt(session, "echo never")
		c.await(from, "a chunk of sleep", func(m message) bool { return chunkOf(m, session) })
		pid := begun(t, journal, session, "sleep 60")
		m, closed := c.nthAnswer(c.start("session/close", `{"sessionId":`+quoted(session)+`}`), 0)
		if m.Error != nil {
			t.Fatal(string(m.Error))
		}
		for _, id := range []string{running, waiting} {
			m, at := c.nthAnswer(id, 0)
			wantStop(t, m, "cancelled")
			if at > closed {
				t.Errorf("the prompt was answered after session/close")
			}
		}
		gone(t, pid)
	})
}

// on_disconnect: drop forgets the agent's session with its last client, keep does not.
func TestDropForgetsTheBinding(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"keep": "echo one\necho two", "drop": ""} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			onEachKind(t, func(s *settings) { s.doors, s.frontDoor.OnDisconnect = 2, mode }, func(t *testing.T, f *fleet, transport string) {
				t.Helper()
				c := f.client(t, transport)
				session := c.session("")
				m, _ := c.turn(session, "echo one")
				wantStop(t, m, "end_turn")
				other := newClient(t, f.dial(t, transport, 1))
				other.initialize()
				if m := other.comeBack("session/resume", session, c.cwd(session)); m.Error != nil {
					t.Fatal(string(m.Error))
				}
				c.close() // another is there
				m, _ = other.turn(session, "echo two")
				wantStop(t, m, "end_turn")
				m, seen := other.turn(session, "history")
				wantStop(t, m, "end_turn")
				if got := text(seen, "agent_message_chunk"); got != "echo one\necho two" {
					t.Errorf("with another client: the history is %q", got)
				}
				other.close() // the last
				if mode == "drop" {
					natstest.Eventually(t, patience, "the binding is forgotten", func() (bool, any) {
						var agent subjects.SessionAgent
						_, err := f.bus.GetJSON(t.Context(), f.bus.Fleet().SessionsBucket(), subjects.AgentKey("local", subjects.SessionID(session)), &agent)
						return errors.Is(err, bus.ErrNotFound), agent
					})
				}
				last := f.client(t, transport)
				if m := last.comeBack("session/resume", session, c.cwd(session)); m.Error != nil {
					t.Fatal(string(m.Error))
				}
				m, seen = last.turn(session, "history")
				wantStop(t, m, "end_turn")
				if got := text(seen, "agent_message_chunk"); !strings.HasPrefix(got, want) || want == "" && strings.Contains(got, "echo one") {
					t.Errorf("the history is %q", got)
				}
			})
		})
	}
}
