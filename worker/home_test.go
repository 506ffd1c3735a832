package worker

import (
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// atHome runs a session's first prompt at a worker that lets its lane go at once.
func (f *fleet) atHome(s *session, home *testWorker) {
	f.t.Helper()
	r := f.want(s.prompt("say x"), subjects.RunCompleted, "", 10*time.Second)
	if r.Owner.Instance != home.Instance() {
		f.t.Fatalf("the only worker is %s, and the prompt ran at %s", home.Instance(), r.Owner.Instance)
	}
	natstest.Eventually(f.t, 10*time.Second, "the lane let go", func() (bool, any) {
		m, err := f.b.Last(f.t.Context(), f.f.OwnStream(), s.own())
		return err == nil && home.tableSize() == 0, string(m.Data)
	})
}

func homely(name string) func(*Config) {
	return func(c *Config) {
		c.Name, c.IdleTTL, c.Capacity = name, time.Millisecond, 1
		c.Raiders[0].Command = append(c.Raiders[0].Command, "load")
	}
}

// A lane without an owner goes to the worker that has its session's agent, whoever got the
// baton: a session's lane, and a slot's by the session whose prompt is next.
func TestALaneGoesHome(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*subjects.SessionMeta){nil, slot("1bjorn")} {
		f := newFleet(t, 2*time.Second)
		home := f.run(homely("home"))
		s := f.session(change)
		f.atHome(s, home)
		other := f.idleWorker(homely("other"))
		p, _ := s.store("say y")
		if l, err := other.take(t.Context(), s.inHand(other, 7)); l != nil || err == nil {
			t.Fatalf("the other worker has the lane, %v", err)
		}
		if r := f.want(p, subjects.RunCompleted, "", 10*time.Second); r.Owner.Instance != home.Instance() {
			t.Errorf("it ran at %s", r.Owner.Instance)
		}
		if n := s.kinds()[subjects.EventNote]; n != 0 {
			t.Errorf("%d notes: the agent's session was not loaded", n)
		}
	}
}

// A home that is full, draining, gone, or does not serve the raider any more does not hold
// up a lane; where it is served next is its home then.
func TestAHomeWithoutRoomIsLeft(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*fleet, *testWorker){
		"full": func(f *fleet, home *testWorker) {
			f.session(nil).prompt("note busy; wait %s", f.path("go"))
			f.noted("busy", 1)
		},
		"stopped": func(_ *fleet, home *testWorker) { home.stop(); <-home.ended },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2*time.Second)
			home := f.run(homely("home"))
			s := f.session(nil)
			f.atHome(s, home)
			leave(f, home)
			other := f.idleWorker(homely("other"))
			s.store("say y")
			l, err := other.take(t.Context(), s.inHand(other, 7))
			if err != nil {
				t.Fatal(err)
			}
			l.end(errReleased)
			other.leave(l)
			close(l.done)
			f.touch("go")
		})
	}
}

// Where the agent's session is loaded next is its home from then on.
func TestHomeMoves(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	home := f.run(homely("home"))
	s := f.session(nil)
	f.atHome(s, home)
	home.stop()
	<-home.ended
	other := f.run(homely("other"))
	f.want(s.prompt("say y"), subjects.RunCompleted, "", 10*time.Second)
	var agent subjects.SessionAgent
	_, err := f.b.GetJSON(t.Context(), f.f.SessionsBucket(), subjects.AgentKey(s.meta.Principal, s.meta.Session), &agent)
	if err != nil || agent.Home != "other" || agent.InnerID == "" {
		t.Errorf("agent %+v, %v; want its home at %s", agent, err, other.Instance())
	}
}

// A name that two workers have is told by the second; a name that was left is not.
func TestAnotherWorkerOfTheName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	const warning = "another worker has this name"
	first := f.run(homely("twin"))
	if second := f.run(homely("twin")); !strings.Contains(second.log.String(), warning) || !strings.Contains(second.log.String(), string(first.Instance())) {
		t.Error("the second did not tell")
	}
	left := f.run(homely("left"))
	left.stop()
	<-left.ended
	for _, w := range []*testWorker{first, f.run(homely("left")), f.run(homely("alone"))} {
		if strings.Contains(w.log.String(), warning) {
			t.Errorf("%s told", w.Instance())
		}
	}
}
