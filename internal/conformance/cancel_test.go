package conformance

import (
	"fmt"
	"strings"
	"testing"

	"raiderfleet/subjects"
)

// A cancel counts, also of a client that leaves in the same moment.
func TestCancelAndLeave(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		from := c.count()
		c.prompt(session, "sleep 1000")
		c.await(from, "the turn", func(m message) bool { return m.Method == "session/update" })
		c.prompt(session, "sleep 1000")
		c.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
		c.close()
		other := f.client(t, transport)
		if m := other.call("session/resume", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(c.cwd(session))+`,"mcpServers":[]}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		m, _ := other.turn(session, "echo free")
		wantStop(t, m, "end_turn")
	})
}

// Prompt and cancel in one read: cancelled, and the raider never starts.
func TestPromptAndCancelInOneWrite(t *testing.T) {
	t.Parallel()
	onEachKindOf(t, byLine, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		spawned := f.events(t, subjects.RaiderSpawned)
		c := f.client(t, transport)
		cancelled := c.session("")
		c.write(c.line(`"p"`, "session/prompt", promptParams(cancelled, "echo never")) +
			c.line("", "session/cancel", `{"sessionId":`+quoted(cancelled)+`}`))
		wantStop(t, c.answer(`"p"`), "cancelled")

		// Another session's raider starts after it: what would have been seen, was seen.
		control := c.session("")
		m, _ := c.turn(control, "echo control")
		wantStop(t, m, "end_turn")
		if err := f.bus.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		if n := len(spawned.of(cancelled)); n != 0 {
			t.Errorf("the raider was started %d times", n)
		}
		if n := len(spawned.of(control)); n != 1 {
			t.Errorf("the control raider was started %d times", n)
		}
		if got := text(c.received(0, -1), "agent_message_chunk"); got != "control" {
			t.Errorf("the raiders said %q", got)
		}
		// The session is fine.
		m, _ = c.turn(cancelled, "echo again")
		wantStop(t, m, "end_turn")
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		chunk := func(m message) bool { return strings.Contains(string(m.Params), "agent_message_chunk") }

		// A running turn and one that waits behind it, with one cancel.
		from := c.count()
		running, waiting := c.prompt(session, "sleep 60"), c.prompt(session, "echo never")
		c.await(from, "a chunk of sleep", chunk)
		c.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
		wantStop(t, c.answer(running), "cancelled")
		wantStop(t, c.answer(waiting), "cancelled")

		// With an id it is answered.
		from = c.count()
		running = c.prompt(session, "sleep 60")
		c.await(from, "a chunk of sleep", chunk)
		c.write(c.line(`"c"`, "session/cancel", `{"sessionId":`+quoted(session)+`}`))
		if m := c.answer(`"c"`); string(m.Result) != "{}" {
			t.Errorf("session/cancel with an id answered %s", m.Result)
		}
		wantStop(t, c.answer(running), "cancelled")

		// $/cancel_request of the prompt.
		from = c.count()
		running = c.prompt(session, "sleep 60")
		c.await(from, "a chunk of sleep", chunk)
		c.notify("$/cancel_request", `{"requestId":`+running+`}`)
		wantFault(t, c.answer(running), -32800, "")

		// A hundred cancels in a turn, between turns, and before one.
		storm := strings.Repeat(c.line("", "session/cancel", `{"sessionId":`+quoted(session)+`}`), 100)
		from = c.count()
		running = c.prompt(session, "sleep 60")
		c.await(from, "a chunk of sleep", chunk)
		c.write(storm)
		wantStop(t, c.answer(running), "cancelled")
		c.write(storm)
		for i := range 20 {
			want := fmt.Sprintf("calm %d", i)
			m, updates := c.turn(session, "echo "+want)
			wantStop(t, m, "end_turn")
			if got := text(updates, "agent_message_chunk"); got != want {
				t.Fatalf("after the storm: %q, want %q", got, want)
			}
		}
	})
}

// Each of many prompts that is cancelled at some moment ends exactly once, and the
// session's next one is never hit.
func TestCancelAtAnyMoment(t *testing.T) {
	t.Parallel()
	turns := 60
	if testing.Short() {
		turns = 20
	}
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		for i := range turns {
			from := c.count()
			id := c.prompt(session, fmt.Sprintf("stream %d 10", 10*i))
			if i%3 == 1 {
				c.await(from, "an update or the response", func(m message) bool {
					return string(m.ID) == id || m.Method == "session/update"
				})
			}
			c.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
			if m := c.answer(id); m.Error != nil {
				t.Fatalf("prompt %d: %s", i, m.Error)
			}
			want := fmt.Sprintf("calm %d", i)
			m, updates := c.turn(session, "echo "+want)
			wantStop(t, m, "end_turn")
			if got := text(updates, "agent_message_chunk"); got != want {
				t.Fatalf("after prompt %d: %q, want %q", i, got, want)
			}
			if n := c.answered(id); n != 1 {
				t.Fatalf("prompt %d was answered %d times", i, n)
			}
		}
	})
}
