package worker

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// A session whose agent can't load it again: the run starts without it, says so, and is
// answered like any other.
func TestASessionThatCantBeLoadedIsToldAndRunsAllTheSame(t *testing.T) {
	t.Parallel()
	for name, arg := range map[string]string{"it fails": "forgetful", "the agent can't": "plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2*time.Second)
			w := f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, arg) })
			news := f.watchFleet()
			s := f.session(slot("1bjorn"))
			f.want(s.prompt("note pid"), subjects.RunCompleted, "", 10*time.Second)
			s.replaced(w, f.noted("pid", 1))

			p := s.prompt("note pid; say hello")
			r := f.want(p, subjects.RunCompleted, "", 10*time.Second)
			if r.Outcome.StopReason != "end_turn" {
				t.Fatalf("outcome %+v", r.Outcome)
			}
			said := s.said()
			if len(said) != 1 || said[0] != "hello" {
				t.Fatalf("the raider said %q", said)
			}
			var note subjects.Note
			for _, e := range s.events() {
				if e.Kind == subjects.EventNote && e.Prompt == p {
					if err := json.Unmarshal(e.Body, &note); err != nil {
						t.Fatal(err)
					}
				}
			}
			if note.Type != subjects.SessionError || note.Binding != "slot:1bjorn" || note.Error == "" || note.Run != p || note.Text == "" {
				t.Fatalf("note %+v", note)
			}
			e := news.await(subjects.SessionError, p)
			if e.Binding != note.Binding || e.Error != note.Error || e.Session != s.meta.Session || e.Raider != bjorn {
				t.Fatalf("event %+v", e)
			}
			// The session has another id inside the agent now, and that one is used.
			var agent subjects.SessionAgent
			if _, err := f.b.GetJSON(t.Context(), f.f.SessionsBucket(), subjects.AgentKey(s.meta.Principal, s.meta.Session), &agent); err != nil {
				t.Fatal(err)
			}
			if notes := f.notes("pid"); len(notes) != 2 || !strings.HasSuffix(notes[1], " "+agent.InnerID) {
				t.Fatalf("the raider ran %q, the record has %s", notes, agent.InnerID)
			}
		})
	}
}

// A session that can be loaded is, without a word, and without its replay being told again.
func TestASessionIsLoadedInANewProcess(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, "load") })
	s := f.session(nil)
	f.want(s.prompt("note pid"), subjects.RunCompleted, "", 10*time.Second)
	s.replaced(w, f.noted("pid", 1))
	f.want(s.prompt("note pid; say hello"), subjects.RunCompleted, "", 10*time.Second)
	notes := f.notes("pid")
	if len(notes) != 2 || inside(notes[0]) != inside(notes[1]) {
		t.Fatalf("the sessions inside were %q", notes)
	}
	if said := s.said(); len(said) != 1 || said[0] != "hello" {
		t.Fatalf("told %q", said)
	}
	if n := s.kinds()[subjects.EventNote]; n != 0 {
		t.Fatalf("%d notes", n)
	}
}

// Closing ends the session's raider process; nobody ends another principal's.
func TestCloseEndsOnlyOnesOwnRaider(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(nil)
	s := f.session(nil)
	f.want(s.prompt("note pid"), subjects.RunCompleted, "", 10*time.Second)
	pid := f.noted("pid", 1)
	l := s.warm(w)
	s.control(subjects.ControlRequest{Op: subjects.ControlClose, Principal: "stranger"})
	if _, _, leaving := l.idleSince(); leaving {
		t.Fatal("the lane was told to leave by a stranger")
	}
	s.control(subjects.ControlRequest{Op: subjects.ControlClose})
	f.gone(pid, 5*time.Second)
}

// replaced kills the session's warm raider process, so that the next prompt starts another.
func (s *session) replaced(w *testWorker, pid int) {
	s.f.t.Helper()
	s.warm(w)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.f.t.Fatal(err)
	}
	// A lane whose raider has gone is released.
	natstest.Eventually(s.f.t, 10*time.Second, "the lane is released", func() (bool, any) {
		return w.owned(s.meta.Lane) == nil, "it is in the table"
	})
}

// inside is the session's id inside the agent that a note names.
func inside(note string) string {
	_, id, _ := strings.Cut(note, " ")
	return id
}
