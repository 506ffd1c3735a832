package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// listed is the answer to session/list.
type listed struct {
	Sessions []struct {
		ID      string            `json:"sessionId"`
		Cwd     string            `json:"cwd"`
		Title   string            `json:"title"`
		Updated time.Time         `json:"updatedAt"`
		Meta    map[string]string `json:"_meta"`
	} `json:"sessions"`
	Next string `json:"nextCursor"`
}

func (c *client) list(params string) listed {
	c.tb.Helper()
	m := c.call("session/list", params)
	if m.Error != nil {
		c.tb.Fatal(string(m.Error))
	}
	return decode[listed](m.Result)
}

// comeBack is session/load or session/resume.
func (c *client) comeBack(method, session, cwd string) message {
	c.tb.Helper()
	return c.call(method, `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(cwd)+`,"mcpServers":[]}`)
}

// session/list shows the sessions with their titles, in pages, of one directory if asked,
// through any front door, closed ones too, and none that was deleted.
func TestListSessions(t *testing.T) {
	t.Parallel()
	f := startFleet(t, func(s *settings) { s.doors = 2 })
	c := f.client(t, "tcp")
	if got := c.list(`{}`); len(got.Sessions) != 0 || got.Next != "" {
		t.Fatalf("an empty fleet lists %+v", got)
	}
	const n = 120
	var ids []string
	for range n {
		ids = append(ids, c.session(""))
	}
	last, closed, deleted := ids[n-1], ids[n-2], ids[n-3]
	m, _ := c.turn(last, "echo  the  first\nline and more")
	wantStop(t, m, "end_turn")
	m, _ = c.turn(last, "echo not this")
	wantStop(t, m, "end_turn")
	for method, id := range map[string]string{"session/close": closed, "session/delete": deleted} {
		if m := c.call(method, `{"sessionId":`+quoted(id)+`}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
	}
	other := newClient(t, f.dial(t, "tcp", 1))
	other.initialize()
	natstest.Eventually(t, patience, "the title", func() (bool, any) {
		first := other.list(`{}`).Sessions[0]
		return first.Title == "echo the first" && first.ID == last, first
	})
	seen := map[string]bool{}
	pages, cursor := 0, `{}`
	for {
		page := other.list(cursor)
		pages++
		for _, s := range page.Sessions {
			if seen[s.ID] {
				t.Fatalf("%s is listed twice", s.ID)
			}
			seen[s.ID] = true
			want := map[string]string{"raiderfleet/raider": "demo", "raiderfleet/state": "open"}
			if s.ID == closed {
				want["raiderfleet/state"] = "closed"
			}
			if fmt.Sprint(s.Meta) != fmt.Sprint(want) || s.Cwd != c.cwd(s.ID) || time.Since(s.Updated) > time.Hour {
				t.Errorf("listed as %+v", s)
			}
		}
		if page.Next == "" {
			break
		}
		cursor = `{"cursor":` + quoted(page.Next) + `}`
	}
	if len(seen) != n-1 || seen[deleted] || !seen[closed] || pages != 3 {
		t.Errorf("%d sessions on %d pages; deleted %t, closed %t", len(seen), pages, seen[deleted], seen[closed])
	}
	if got := other.list(`{"cwd":` + quoted(c.cwd(last)) + `}`); len(got.Sessions) == 0 {
		t.Error("nothing is listed of its directory")
	}
	if got := other.list(`{"cwd":"/nowhere"}`); len(got.Sessions) != 0 {
		t.Errorf("of another directory: %+v", got)
	}
	for params, says := range map[string]string{`{"cwd":"x"}`: "absolute", `{"cursor":"x"}`: "cursor", `{"cursor":7}`: "cursor", `[]`: "object"} {
		if got := wantFault(t, other.call("session/list", params), -32602, ""); !strings.Contains(got.Message, says) {
			t.Errorf("%s: %s", params, got.Message)
		}
	}
}

// session/resume shows nothing of what was, and all that comes, in mid-turn too; a question
// that is open is asked again.
func TestResume(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(s *settings) { s.doors = 2 }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		m, _ := c.turn(session, "echo before")
		wantStop(t, m, "end_turn")
		from := c.count()
		id := c.prompt(session, "ask")
		c.await(from, "the ask", isAsk)

		other := newClient(t, f.dial(t, transport, 1))
		other.initialize()
		if m := other.comeBack("session/resume", session, c.cwd(session)); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		ask, _ := other.await(0, "the ask once more", isAsk)
		other.respond(string(ask.ID), "result", `{"outcome":{"outcome":"selected","optionId":"allow_once"}}`)
		wantStop(t, c.answer(id), "end_turn")
		other.await(0, "what the raider says then", func(m message) bool { return strings.Contains(string(m.Params), "allowed") })
		m, seen := other.turn(session, "echo after")
		wantStop(t, m, "end_turn")
		if got := text(seen, "agent_message_chunk"); got != "after" {
			t.Errorf("it says %q", got)
		}
		for _, m := range other.received(0, -1) {
			if strings.Contains(string(m.Params), "before") {
				t.Errorf("shown again: %s", m.Params)
			}
		}
		// The process knows what was.
		m, seen = other.turn(session, "history")
		wantStop(t, m, "end_turn")
		if got := text(seen, "agent_message_chunk"); got != "echo before\nask\necho after" {
			t.Errorf("the history is %q", got)
		}
		for params, code := range map[string]int64{
			`{"sessionId":"nobody","cwd":"/","mcpServers":[]}`:                    -32002,
			`{"sessionId":` + quoted(session) + `,"cwd":"/else","mcpServers":[]}`: -32602,
			`{"sessionId":` + quoted(session) + `}`:                               -32602,
		} {
			wantFault(t, other.call("session/resume", params), code, "")
		}
	})
}

// session/delete ends what runs and waits; then nothing of the session is left, for no
// client, and deleting it once more is fine.
func TestDelete(t *testing.T) {
	t.Parallel()
	var journal string
	onEachKind(t, func(s *settings) { s.doors = 2; journal = s.journaled(t) }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		m, _ := c.turn(session, "echo secret plans")
		wantStop(t, m, "end_turn")
		other := newClient(t, f.dial(t, transport, 1))
		other.initialize()
		if m := other.comeBack("session/resume", session, c.cwd(session)); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		running, waiting := c.prompt(session, "sleep 60"), c.prompt(session, "echo never")
		pid := begun(t, journal, session, "sleep 60")
		del := `{"sessionId":` + quoted(session) + `}`
		if m := other.call("session/delete", del); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		for _, id := range []string{running, waiting} {
			wantStop(t, c.answer(id), "cancelled")
		}
		gone(t, pid)
		id, fleet := subjects.SessionID(session), f.bus.Fleet()
		for stream, subject := range map[string]string{
			fleet.TranscriptStream(): fleet.Transcript(id), fleet.LogsStream(): fleet.LogSession(id),
		} {
			if m, err := f.bus.Next(t.Context(), stream, subject, 0); err == nil {
				t.Errorf("%s is left: %s", subject, m.Data)
			}
		}
		var meta json.RawMessage
		for _, key := range []string{subjects.MetaKey(subjects.LocalPrincipal, id), subjects.AgentKey(subjects.LocalPrincipal, id)} {
			if _, err := f.bus.GetJSON(t.Context(), fleet.SessionsBucket(), key, &meta); err == nil {
				t.Errorf("%s is left: %s", key, meta)
			}
		}
		for _, c := range []*client{c, other} {
			wantFault(t, c.comeBack("session/load", session, "/"), -32002, "")
			wantFault(t, c.call("session/prompt", promptParams(session, "echo x")), -32002, "")
			for range 2 {
				if m := c.call("session/delete", del); m.Error != nil {
					t.Errorf("deleted again: %s", m.Error)
				}
			}
		}
		if m := c.call("session/delete", `{"sessionId":"nobody"}`); m.Error != nil {
			t.Errorf("one that never was: %s", m.Error)
		}
	})
}
