package worker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// ordered sorts events as readers do: by (epoch, n).
func ordered(events []storedEvent) []storedEvent {
	out := slices.Clone(events)
	slices.SortStableFunc(out, func(a, b storedEvent) int {
		if a.Epoch != b.Epoch {
			return int(a.Epoch) - int(b.Epoch)
		}
		return int(a.N) - int(b.N)
	})
	return out
}

func TestPromptRunsAndItsEventsComeInOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	p := s.prompt("say a; burst 3000; say z")
	r := f.want(p, subjects.RunCompleted, "", 10*time.Second)
	if r.Outcome.StopReason != "end_turn" {
		t.Fatalf("stop reason %q", r.Outcome.StopReason)
	}
	natstest.Eventually(t, 5*time.Second, "outcome event", func() (bool, any) { return s.outcomes(p) == 1, s.kinds() })
	said := s.said()
	if len(said) != 3002 || said[0] != "a" || said[3001] != "z" {
		t.Fatalf("%d chunks", len(said))
	}
	// Everything that was sent before the answer counts for the outcome.
	if n := s.whole(r.Owner.Epoch); r.Outcome.LastN != n {
		t.Fatalf("the outcome's last n is %d, want %d", r.Outcome.LastN, n)
	}
	// Nothing of the run is stored after its outcome.
	events := s.events()
	if last := events[len(events)-1]; last.Kind != subjects.EventOutcome || last.LastN != r.Outcome.LastN {
		t.Fatalf("the last event is %+v", last.EventHeader)
	}
}

// A slot's prompts run one at a time in the order of their acceptance, whoever they are of;
// the worker is woken for each.
func TestASlotServesItsPrincipalsInOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Second) // the sweep comes too late for anything
	w := f.run(nil)
	of := func(p subjects.Principal) *session {
		return f.session(func(m *subjects.SessionMeta) { slot("1bjorn")(m); m.Principal = p })
	}
	ada, bob := of("ada"), of("bob")
	f.want(ada.prompt("say hello"), subjects.RunCompleted, "", 10*time.Second)
	ada.warm(w)
	// Of another principal than the last one's, to a warm owner.
	p := bob.prompt("note who; wait go")
	f.noted("who", 1)
	for _, s := range []*session{ada, bob, ada, ada, bob} {
		p = s.prompt("note who")
	}
	f.touch("go")
	f.want(p, subjects.RunCompleted, "", 20*time.Second)
	var started []string
	for _, s := range []*session{ada, bob} {
		for _, e := range s.events() {
			if e.Kind == subjects.EventUser {
				started = append(started, fmt.Sprintf("%08d %s", e.Seq, s.meta.Principal))
			}
		}
	}
	slices.Sort(started)
	got := ""
	for _, s := range started {
		got += s[len("00000000"):]
	}
	if got != " ada bob ada bob ada ada bob" {
		t.Fatalf("they ran as%s", got)
	}
}

// A raider that reads nothing any more is not waited for by a cancel: its signals come.
func TestACancelOfARaiderThatDoesNotRead(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) {
		c.CancelGrace = 50 * time.Millisecond
		c.Raiders[0].Command = append(c.Raiders[0].Command, "fullpipe")
	})
	s := f.session(nil)
	f.want(s.prompt("last"), subjects.RunCompleted, "", 10*time.Second)
	p := s.large(strings.Repeat("x", 1<<20)) // more than a pipe holds
	natstest.Eventually(t, 10*time.Second, "it runs", func() (bool, any) {
		l := w.owned(s.meta.Lane)
		if l == nil {
			return false, "no lane"
		}
		st := l.status()
		return st.Prompt == p && st.State == "running", st
	})
	s.control(subjects.ControlRequest{Op: subjects.ControlCancel, Prompt: p})
	f.want(p, subjects.RunCancelled, "", 10*time.Second)
}

// A prompt that was cancelled while it ran ends cancelled, though its worker was lost.
func TestCancelledAndLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.session(nil)
	p, _ := s.store("note ran")
	dead, _ := s.deadClaim()
	f.putRecord(p, s.runningUnder(dead, 1))
	f.putMark(p)
	f.run(nil)
	s.baton()
	f.want(p, subjects.RunCancelled, "", 20*time.Second)
	if len(f.notes("ran")) != 0 {
		t.Error("it was run")
	}
}

// What calls itself an update and is none does not reach clients.
func TestUpdatesThatAreNone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	l := newLane(w.Worker, s.inHand(w, 1))
	defer l.abandon()
	p := &process{l: l, session: s.meta.Session}
	for _, params := range []string{`{"sessionId":5}`, `{"update":"x"}`, `{"update":null}`, `[]`, `7`, ``, `{"update":{"sessionUpdate":"new kind"}}`} {
		p.HandleNotification(t.Context(), nil, "session/update", json.RawMessage(params))
	}
	got := taken(l.out, 0)
	if len(got) != 1 || !strings.Contains(string(got[0].body), "new kind") || strings.Contains(string(got[0].body), "\n") {
		t.Errorf("%d events", len(got))
	}
}
