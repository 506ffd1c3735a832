package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"raiderfleet/subjects"
)

// lateBudget is small enough to be tested, and large enough for a turn.
const lateBudget = 200

// An agent that can't have its session again is given the conversation so far with the next
// prompt, once, and the client is told.
func TestAConversationIsCarried(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want func(session string) string // of what comes before the text
	}{
		"as a resource": {[]string{"forgetful", "embeds"}, func(s string) string {
			return "resource||raiderfleet:///" + s + "/conversation.md|text/markdown|"
		}},
		"as text": {[]string{"plain"}, func(string) string { return "text|" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2*time.Second)
			w := f.run(func(c *Config) {
				c.Raiders[0].Command, c.Raiders[0].TranscriptBudget = raiderCommand(t, test.args...), 1000
			})
			s := f.session(nil)
			f.want(s.prompt("note pid; say one"), subjects.RunCompleted, "", 10*time.Second)
			f.want(s.prompt("say two"), subjects.RunCompleted, "", 10*time.Second)
			s.replaced(w, f.noted("pid", 1))
			f.want(s.prompt("recall; note pid"), subjects.RunCompleted, "", 10*time.Second)
			f.want(s.prompt("say four; recall"), subjects.RunCompleted, "", 10*time.Second)
			want := []string{"one", "two", test.want(string(s.meta.Session)) +
				"# The conversation so far\n\n## User\n\nnote pid; say one\n\n## Agent\n\none\n\n## User\n\nsay two\n\n## Agent\n\ntwo\n", "four"}
			got := s.said()
			if test.want("")[:4] == "text" && len(got) > 2 {
				got[2] = strings.TrimRight(got[2], "|")
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("said\n%q, want\n%q", got, want)
			}
			if note := s.lostNote(); note.Text != "The agent's earlier session could not be loaded; it is given the conversation so far." {
				t.Errorf("note %+v", note)
			}
			// It is in the agent's own session now, which another process need not be told.
			var agent subjects.SessionAgent
			if _, err := f.b.GetJSON(t.Context(), f.f.SessionsBucket(), subjects.AgentKey(s.meta.Principal, s.meta.Session), &agent); err != nil || !strings.HasSuffix(f.notes("pid")[1], " "+agent.InnerID) {
				t.Errorf("the record has %+v, %v", agent, err)
			}
		})
	}
}

// lostNote is the last note of a session that could not be loaded.
func (s *session) lostNote() (note subjects.Note) {
	s.f.t.Helper()
	for _, e := range s.events() {
		if e.Kind == subjects.EventNote {
			if err := json.Unmarshal(e.Body, &note); err != nil {
				s.f.t.Fatal(err)
			}
		}
	}
	return note
}

// What is carried has a bound: the newest of it. A budget of 0 carries nothing.
func TestTheTranscriptBudget(t *testing.T) {
	t.Parallel()
	for _, budget := range []int{lateBudget, 0} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2*time.Second)
			w := f.run(func(c *Config) {
				c.Raiders[0].Command, c.Raiders[0].TranscriptBudget = raiderCommand(t, "plain"), budget
			})
			s := f.session(nil)
			f.want(s.prompt("note pid; say first %s", strings.Repeat("é", 200)), subjects.RunCompleted, "", 10*time.Second)
			f.want(s.prompt("say last"), subjects.RunCompleted, "", 10*time.Second)
			s.replaced(w, f.noted("pid", 1))
			f.want(s.prompt("recall"), subjects.RunCompleted, "", 10*time.Second)
			said, note := s.said()[2:], s.lostNote().Text
			if budget == 0 {
				if len(said) != 0 || !strings.HasSuffix(note, "it starts without it.") {
					t.Errorf("carried %q, note %q", said, note)
				}
				return
			}
			head := "text|# The conversation so far\n\n(Its beginning is left out.)\n\n## Agent\n\n"
			tail := "\n\n## User\n\nsay last\n\n## Agent\n\nlast\n|||"
			if len(said) != 1 || !strings.HasPrefix(said[0], head) || !strings.HasSuffix(said[0], tail) ||
				len(said[0])-len(head)-len(tail) > budget || strings.Contains(said[0], "\uFFFD") || strings.Contains(said[0], "first") {
				t.Errorf("carried %q", said)
			}
			if !strings.HasSuffix(note, "it is given the newest of the conversation so far.") {
				t.Errorf("note %q", note)
			}
		})
	}
}

// A process that went before the agent was given the conversation leaves that to the next.
func TestAConversationIsCarriedByTheNext(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) {
		c.Raiders[0].Command, c.Raiders[0].TranscriptBudget = raiderCommand(t, "slownew", f.path("opening"), f.path("go")), 1000
	})
	f.touch("go")
	s := f.session(nil)
	f.want(s.prompt("note pid; say one"), subjects.RunCompleted, "", 10*time.Second)
	s.replaced(w, f.noted("pid", 1))
	for _, name := range []string{"go", "opening"} {
		if err := os.Remove(f.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	p := s.prompt("recall; say lost")
	f.noted("opening", 1)
	f.putMark(p)
	s.control(subjects.ControlRequest{Op: subjects.ControlCancel, Prompt: p})
	f.touch("go")
	f.want(p, subjects.RunCancelled, "", 10*time.Second)
	f.want(s.prompt("recall"), subjects.RunCompleted, "", 10*time.Second)
	if said := s.said(); len(said) != 2 || !strings.Contains(said[1], "## Agent\n\none\n") {
		t.Errorf("said %q", said)
	}
}

// An agent that resumes sessions is not made to load them.
func TestASessionIsResumed(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"resume"}, {"resume", "forgetful"}} {
		f := newFleet(t, 2*time.Second)
		w := f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, args...) })
		s := f.session(nil)
		f.want(s.prompt("note pid"), subjects.RunCompleted, "", 10*time.Second)
		s.replaced(w, f.noted("pid", 1))
		f.want(s.prompt("note pid; recall; say hello"), subjects.RunCompleted, "", 10*time.Second)
		if notes := f.notes("pid"); len(notes) != 2 || inside(notes[0]) != inside(notes[1]) {
			t.Errorf("%q: the sessions inside were %q", args, notes)
		}
		if said := s.said(); len(said) != 1 || s.kinds()[subjects.EventNote] != 0 {
			t.Errorf("%q: told %q, %v", args, said, s.kinds())
		}
	}
}

// A raider that ends before it has opened its session is started again, with pauses, not
// for ever; its last words are the error.
func TestAStartIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	f.run(func(c *Config) {
		c.Raiders = []Raider{
			{Name: "second", Command: raiderCommand(t, "failfirst", f.path("second"), "2")},
			{Name: "never", Command: raiderCommand(t, "failfirst", f.path("never"), "9")},
		}
	})
	for raider, text := range map[subjects.Raider]string{"second": "", "never": "the lock is held"} {
		s := f.session(func(m *subjects.SessionMeta) { m.Raider = raider })
		state := subjects.RunCompleted
		if text != "" {
			state = subjects.RunFailed
		}
		f.want(s.prompt("say x"), state, text, 10*time.Second)
		if starts, err := os.ReadFile(f.path(string(raider))); err != nil || strings.Count(string(starts), "\n") != 3 {
			t.Errorf("%s: started %q, %v", raider, starts, err)
		}
	}
}
