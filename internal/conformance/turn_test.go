package conformance

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// turnCount is how many echo turns TestManyTurns does.
var turnCount = flag.Int("conformance.turns", 10000, "echo turns of TestManyTurns; with -short 500")

// A turn's updates come before its response and nothing of it after, thousands of times.
func TestManyTurns(t *testing.T) {
	t.Parallel()
	turns := *turnCount
	if testing.Short() {
		turns = min(turns, 500)
	}
	const connections = 4
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		var all sync.WaitGroup
		for n := range connections {
			c := f.client(t, transport)
			session := c.session("")
			all.Go(func() {
				for i := range turns / connections / len(transports) {
					want := fmt.Sprintf("turn %d of %d", i, n)
					from := c.count()
					m, at := c.nthAnswer(c.prompt(session, "echo "+want), 0)
					if m.Error != nil {
						t.Errorf("turn %d: %s", i, m.Error)
						return
					}
					// What came late would be in front of the next turn's updates.
					if got := text(c.received(from, at), "agent_message_chunk"); got != want {
						t.Errorf("turn %d: before its response came %q, want %q", i, got, want)
						return
					}
				}
				// Nothing late is left behind.
				m, updates := c.turn(session, "echo last")
				wantStop(t, m, "end_turn")
				if got := text(updates, "agent_message_chunk"); got != "last" {
					t.Errorf("the last turn got %q", got)
				}
			})
		}
		all.Wait()
	})
}

// Two prompts of one session: the second one's updates after the first one's response.
func TestQueuedTurns(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		const prompts, updates = 5, 40
		from := c.count()
		var ids []string
		var lines strings.Builder
		for i := range prompts {
			id := fmt.Sprintf(`"q%d"`, i)
			ids = append(ids, id)
			lines.WriteString(c.line(id, "session/prompt", promptParams(session, fmt.Sprintf("stream %d %d", updates, 10+i))))
		}
		c.write(lines.String())
		for _, id := range ids {
			wantStop(t, c.answer(id), "end_turn")
		}
		turn, chunks := 0, 0
		for _, m := range c.received(from, -1) {
			switch m.Method {
			case "session/update":
				u := decode[update](m.Params)
				if u.Update.Kind != "agent_message_chunk" {
					continue // its place in the queue
				}
				if chunks++; len(u.text()) != 10+turn {
					t.Fatalf("in turn %d came an update of %d bytes", turn, len(u.text()))
				}
			case "":
				if string(m.ID) != ids[turn] || chunks != updates {
					t.Fatalf("response %s after %d updates in turn %d", m.ID, chunks, turn)
				}
				turn, chunks = turn+1, 0
			}
		}
	})
}

// How a turn ends that does not end well.
func TestFailures(t *testing.T) {
	t.Parallel()
	var journal string
	onEachKind(t, func(s *settings) { journal = s.journaled(t) }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")

		m, updates := c.turn(session, "fail the disk is full")
		wantOutcome(t, wantFault(t, m, -32000, "the disk is full"), "failed")
		if got := text(updates, "agent_message_chunk"); strings.Contains(got, "disk") {
			t.Errorf("the error came as a message of the agent: %q", got)
		}
		m, _ = c.turn(session, "exit 7")
		wantOutcome(t, wantFault(t, m, -32000, "exit code 7"), "failed")

		// SIGKILL of the raider in mid-turn.
		from := c.count()
		id := c.prompt(session, "sleep 60")
		pid := begun(t, journal, session, "sleep 60")
		c.await(from, "a chunk of sleep", func(m message) bool { return strings.Contains(string(m.Params), "agent_message_chunk") })
		if pid == os.Getpid() {
			t.Fatal("the raider is no process of its own")
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, wantFault(t, c.answer(id), -32000, "killed by signal 9"), "failed")

		// The session goes on, with a new process.
		m, updates = c.turn(session, "history")
		wantStop(t, m, "end_turn")
		if got := text(updates, "agent_message_chunk"); !strings.Contains(got, "sleep 60") {
			t.Errorf("the new process knows only %q", got)
		}
	})
}
