package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// ends are what a client was told of turns that it has no answer to.
func (c *client) ends(from int) []string {
	c.tb.Helper()
	var out []string
	for _, m := range c.received(from, -1) {
		if m.Method != "session/update" {
			continue
		}
		turn := decode[struct {
			Update struct {
				Meta map[string]json.RawMessage `json:"_meta"`
			} `json:"update"`
		}](m.Params).Update.Meta["raiderfleet/turn"]
		if turn == nil {
			continue
		}
		end := decode[struct {
			Outcome string `json:"outcome"`
			Reason  string `json:"stopReason"`
			Error   string `json:"error"`
		}](turn)
		out = append(out, fmt.Sprintf("%s %s%s", end.Outcome, end.Reason, end.Error))
	}
	return out
}

// Who loads a session sees which of its turns failed or were cancelled, and of a turn that
// another sends when it ends; who sent it has the answer, and is told nothing beside.
func TestEndsAreTold(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(s *settings) { s.doors = 2 }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		a := f.client(t, transport)
		session := a.session("")
		a.turn(session, "echo one")
		wantFault(t, first(a.turn(session, "fail no room")), -32000, "no room")
		from := a.count()
		id := a.prompt(session, "sleep 1000")
		a.await(from, "the turn", func(m message) bool { return m.Method == "session/update" })
		a.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
		wantStop(t, a.answer(id), "cancelled")

		b := newClient(t, f.dial(t, "tcp", 1))
		b.initialize()
		if m := b.call("session/load", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(a.cwd(session))+`,"mcpServers":[]}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		if got := b.ends(0); !slices.Equal(got, []string{"failed no room", "cancelled "}) {
			t.Errorf("the load told %q", got)
		}
		from = b.count()
		a.turn(session, "echo two")
		b.until("the end of the turn", func() bool { return len(b.got) > from && len(endsOf(t, b.got[from:])) == 1 })
		if got := b.ends(from); !slices.Equal(got, []string{"completed end_turn"}) {
			t.Errorf("live told %q", got)
		}
		if got := a.ends(0); len(got) != 0 {
			t.Errorf("who sent the prompts was told %q", got)
		}
	})
}

// endsOf is for until, which holds the lock.
func endsOf(tb testing.TB, all []message) []message {
	tb.Helper()
	return slices.DeleteFunc(slices.Clone(all), func(m message) bool {
		return m.Method != "session/update" || !json.Valid(m.Params) || decode[struct {
			Update struct {
				Meta map[string]json.RawMessage `json:"_meta"`
			} `json:"update"`
		}](m.Params).Update.Meta["raiderfleet/turn"] == nil
	})
}

func first[A, B any](a A, _ B) A { return a }

// Who loads a session is told which of its prompts wait, and where.
func TestALoadTellsWhatWaits(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		a := f.client(t, transport)
		session := a.session("1demo")
		from := a.count()
		a.prompt(session, "sleep 1000")
		a.await(from, "the turn", func(m message) bool { return m.Method == "session/update" })
		a.prompt(session, "echo two")
		place := func(m message) bool {
			if m.Method != "session/update" {
				return false
			}
			q := decode[struct {
				Update struct {
					Meta struct {
						Queue struct {
							Place int `json:"place"`
							Of    int `json:"of"`
						} `json:"raiderfleet/queue"`
					} `json:"_meta"`
				} `json:"update"`
			}](m.Params).Update.Meta.Queue
			return q.Place == 1 && q.Of >= 2 // what an earlier test cancelled may just be leaving
		}
		a.await(from, "its place", place)
		b := f.client(t, transport)
		if m := b.call("session/load", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(a.cwd(session))+`,"mcpServers":[]}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		if all := b.received(0, -1); !slices.ContainsFunc(all, place) {
			t.Errorf("the load told nothing of it: %s", b.tail())
		}
		a.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
	})
}
