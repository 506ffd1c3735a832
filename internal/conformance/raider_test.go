package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/stream"
	"raiderfleet/worker"
)

// gone waits until a process is gone.
func gone(tb testing.TB, pid int) {
	tb.Helper()
	natstest.Eventually(tb, patience, fmt.Sprintf("process %d is gone", pid), func() (bool, any) {
		return syscall.Kill(pid, 0) != nil, "alive"
	})
}

// journaled makes the first raider keep a journal, and returns its path.
func (s *settings) journaled(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "journal")
	s.worker.Raiders[0].Env["RAIDERFLEET_DEMO_JOURNAL"] = path
	return path
}

// begun waits until the journal says that a raider has begun a turn, and returns the
// process that runs it.
func begun(tb testing.TB, journal, session, prompt string) (pid int) {
	tb.Helper()
	natstest.Eventually(tb, patience, "the turn "+prompt+" of "+session+" begins", func() (bool, any) {
		lines, _ := os.ReadFile(journal) // not there before the first turn
		for line := range strings.SplitSeq(string(lines), "\n") {
			words := strings.Fields(line)
			if len(words) < 5 || words[0] != "start" || strings.Join(words[4:], " ") != prompt {
				continue
			}
			var err error
			if pid, err = strconv.Atoi(words[2]); err == nil && syscall.Kill(pid, 0) == nil {
				return true, ""
			}
		}
		return false, string(lines)
	})
	return pid
}

// pid is a number that the raider says.
func (c *client) pid(session, prompt string) int {
	c.tb.Helper()
	m, seen := c.turn(session, prompt)
	wantStop(c.tb, m, "end_turn")
	pid, err := strconv.Atoi(text(seen, "agent_message_chunk"))
	if err != nil || syscall.Kill(pid, 0) != nil {
		c.tb.Fatalf("%s: process %d, %v", prompt, pid, err)
	}
	return pid
}

// A child that has left the raider's process group and session and lost its parent goes
// with its lane, whichever way the raider goes.
func TestForkedChildGoesWithItsLane(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		closed, crashed := c.session(""), c.session("")
		child := c.pid(closed, "fork")
		if m := c.call("session/close", `{"sessionId":`+quoted(closed)+`}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		gone(t, child)

		child = c.pid(crashed, "fork")
		m, _ := c.turn(crashed, "exit 7")
		wantOutcome(t, wantFault(t, m, -32000, "exit code 7"), "failed")
		if streams(t) {
			// The raider's process is the adapter, which goes on; its lane has not ended.
			if m := c.call("session/close", `{"sessionId":`+quoted(crashed)+`}`); m.Error != nil {
				t.Fatal(string(m.Error))
			}
		}
		gone(t, child)
	})
}

// A raider that heeds neither a cancel nor SIGINT: the turn ends as cancelled all the
// same, one grace after another, and its process is gone.
func TestHangIsEnded(t *testing.T) {
	t.Parallel()
	const grace = 400 * time.Millisecond
	var journal string
	onEachKind(t, func(s *settings) {
		s.worker.CancelGrace = grace
		journal = s.journaled(t)
	}, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		from := c.count()
		id := c.prompt(session, "hang")
		raider := begun(t, journal, session, "hang")
		begin := time.Now()
		c.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
		m := c.answer(id)
		wantStop(t, m, "cancelled")
		// Not by session/cancel, and not by SIGINT, which comes after the first grace.
		least := 2 * grace
		if streams(t) {
			least = grace // SIGINT is its cancel, SIGTERM comes a grace later
		}
		if took := time.Since(begin); took < least {
			t.Errorf("ended after %v: it hangs neither through a cancel nor a SIGINT", took)
		}
		if got := text(c.received(from, -1), "agent_message_chunk"); got != "" {
			t.Errorf("it said %q", got)
		}
		gone(t, raider)
		// The session goes on with another process, and knows its earlier prompts.
		m, seen := c.turn(session, "history")
		wantStop(t, m, "end_turn")
		if got := text(seen, "agent_message_chunk"); got != "hang" {
			t.Errorf("the history is %q", got)
		}
	})
}

// A cancel is one SIGINT for a command, as in a hall: SIGTERM comes a grace later.
func TestSignalsOfACancel(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	heard := filepath.Join(t.TempDir(), "heard")
	const script = `trap 'echo INT >>"$1"' INT; trap 'echo TERM >>"$1"; exit' TERM; echo on >>"$1"; while :; do sleep 0.05; done`
	args, err := stream.Config{Command: []string{"sh", "-c", script, "sh", heard}}.Args()
	if err != nil {
		t.Fatal(err)
	}
	f := startFleet(t, func(s *settings) {
		s.worker.CancelGrace = 2 * time.Second
		s.worker.Raiders[0].Kind, s.worker.Raiders[0].Command = worker.KindStream, append([]string{exe, "stream-raider"}, args...)
	})
	c := f.client(t, "tcp")
	session := c.session("")
	id := c.prompt(session, "go")
	lines := func() string {
		text, _ := os.ReadFile(heard) // not there before it has begun
		return string(text)
	}
	natstest.Eventually(t, patience, "the command's begin", func() (bool, any) { return lines() == "on\n", lines() })
	begin := time.Now()
	c.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
	wantStop(t, c.answer(id), "cancelled")
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("SIGTERM came after %v", took)
	}
	if got := lines(); got != "on\nINT\nTERM\n" {
		t.Errorf("the command has heard %q", got)
	}
}

// A raider has the variables that its configuration names.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(s *settings) {
		s.worker.Raiders[0].Env["SAGA"] = "of the people of Laxardal"
	}, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		for prompt, want := range map[string]string{"env SAGA": "of the people of Laxardal", "env RAIDERFLEET_TEST_UNSET": ""} {
			m, seen := c.turn(c.session(""), prompt)
			wantStop(t, m, "end_turn")
			if got := strings.TrimSpace(text(seen, "agent_message_chunk")); got != want {
				t.Errorf("%s: %q", prompt, got)
			}
		}
	})
}
