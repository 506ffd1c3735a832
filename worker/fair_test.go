package worker

import (
	"fmt"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func TestFiftyRaidersOnePlace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	var names []subjects.Raider
	f.run(func(c *Config) {
		c.Capacity, c.MaxWarm, c.Raiders = 1, 5, nil
		for i := range 50 {
			names = append(names, subjects.Raider(fmt.Sprintf("r%d", i)))
			c.Raiders = append(c.Raiders, Raider{Name: names[i], Command: raiderCommand(t)})
		}
	})
	var prompts []subjects.PromptID
	for _, name := range names {
		s := f.session(func(m *subjects.SessionMeta) { m.Raider = name })
		prompts = append(prompts, s.prompt("say hello"))
	}
	// Far less than the idle time: warm lanes make room.
	for _, p := range prompts {
		f.want(p, subjects.RunCompleted, "", 3*time.Minute)
	}
}

func TestAnEndlessBacklogStarvesNobody(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	f.run(func(c *Config) { c.Capacity, c.MaxWarm = 1, 1 })
	busy, other := f.session(nil), f.session(nil)
	var last subjects.PromptID
	for range 400 {
		last, _ = busy.store("say x")
	}
	busy.baton()
	f.noSooner(busy, 3)
	p := other.prompt("say hello")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
	if r := f.record(last); r.State.Ended() {
		t.Fatal("the endless backlog had an end: nothing is proved")
	}
}

func TestRaidersTakeTurns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	var prompts []subjects.PromptID
	for range 12 {
		prompts = append(prompts, f.session(nil).prompt("say x"))
	}
	p := f.session(func(m *subjects.SessionMeta) { m.Raider = "other" }).prompt("say hello")
	f.run(func(c *Config) {
		c.Capacity = 1
		c.Raiders = append(c.Raiders, Raider{Name: "other", Command: raiderCommand(t)})
	})
	first := f.want(p, subjects.RunCompleted, "", 20*time.Second)
	before := 0
	for _, x := range prompts {
		if f.want(x, subjects.RunCompleted, "", 20*time.Second).Started.Before(first.Started) {
			before++
		}
	}
	if before > 2 {
		t.Fatalf("%d runs of the one raider came before the other's first", before)
	}
}

// noSooner waits until the session has n outcomes.
func (f *fleet) noSooner(s *session, n int) {
	f.t.Helper()
	natstest.Eventually(f.t, 10*time.Second, fmt.Sprintf("%d outcomes", n), func() (bool, any) {
		k := s.kinds()
		return k[subjects.EventOutcome] >= n, k
	})
}

func TestWarmLanesAreEvictedAtMaxWarm(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) { c.Capacity, c.MaxWarm = 1, 2 })
	var sessions []*session
	var pids []int
	for i := range 3 {
		s := f.session(nil)
		sessions = append(sessions, s)
		f.want(s.prompt("note pid"), subjects.RunCompleted, "", 10*time.Second)
		pids = append(pids, f.noted("pid", i+1))
		// Else its lane could see the next baton wait and make room by itself.
		s.warm(w)
		if n := w.tableSize(); n > 2 {
			t.Fatalf("%d raiders, max_warm is 2", n)
		}
	}
	// The longest idle one went.
	f.gone(pids[0], 5*time.Second)
	if !alive(pids[1]) || !alive(pids[2]) || w.owned(sessions[0].meta.Lane) != nil {
		t.Fatalf("alive: %v %v", alive(pids[1]), alive(pids[2]))
	}
	// It comes again with its next prompt, and one that is warm keeps its process.
	f.want(sessions[2].prompt("note pid"), subjects.RunCompleted, "", 10*time.Second)
	sessions[2].warm(w)
	if pid := f.noted("pid", 4); pid != pids[2] {
		t.Fatalf("a warm session was served by process %d, its own is %d", pid, pids[2])
	}
	f.want(sessions[0].prompt("say again"), subjects.RunCompleted, "", 10*time.Second)
}

// warm waits until the session's lane is idle at w.
func (s *session) warm(w *testWorker) *lane {
	s.f.t.Helper()
	var l *lane
	natstest.Eventually(s.f.t, 10*time.Second, "lane is warm", func() (bool, any) {
		if l = w.owned(s.meta.Lane); l == nil {
			return false, "not in the table"
		}
		idle, _, _ := l.idleSince()
		return idle, l.status().State
	})
	return l
}

func TestMaxRunningIsRespected(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) {
		c.Capacity = 4
		c.Raiders[0].MaxRunning = 2
		c.Raiders = append(c.Raiders, Raider{Name: "other", Command: raiderCommand(t)})
	})
	var prompts []subjects.PromptID
	for range 4 {
		prompts = append(prompts, f.session(nil).prompt("note pid; wait %s", f.path("go")))
	}
	f.noted("pid", 2)
	// Another raider has its place.
	s := f.session(func(m *subjects.SessionMeta) { m.Raider = "other" })
	f.want(s.prompt("say hello"), subjects.RunCompleted, "", 10*time.Second)
	natstest.Stays(t, 200*time.Millisecond, "two run", func() (bool, any) { return len(f.notes("pid")) == 2, f.notes("pid") })
	// The other's is given back a moment after its outcome.
	natstest.Eventually(t, 5*time.Second, "two places in use", func() (bool, any) { n := w.places.inUse(); return n == 2, n })
	f.touch("go")
	for _, p := range prompts {
		f.want(p, subjects.RunCompleted, "", 10*time.Second)
	}
}

// Each that needs room sends another warm lane away: once all waited for the same one,
// and were then more than max_warm allows.
func TestRoomIsMadeForSeveralAtOnce(t *testing.T) {
	t.Parallel()
	const places = 4
	f := newFleet(t, 5*time.Second)
	w := f.run(func(c *Config) {
		c.Capacity, c.MaxWarm = places, places
		// It takes its time to go, so that all of them wait at the same moment.
		c.Raiders[0].Command = raiderCommand(t, "stubborn")
	})
	var old []*session
	for range places {
		s := f.session(nil)
		f.want(s.prompt("say warm"), subjects.RunCompleted, "", 20*time.Second)
		s.warm(w)
		old = append(old, s)
	}
	var prompts []subjects.PromptID
	for range places {
		prompts = append(prompts, f.session(nil).prompt("say hello"))
	}
	for _, p := range prompts {
		f.want(p, subjects.RunCompleted, "", time.Minute)
	}
	for _, s := range old {
		if w.owned(s.meta.Lane) != nil {
			t.Errorf("lane %s is still warm; %d lanes, max_warm is %d", s.meta.Lane, w.tableSize(), places)
		}
	}
}
