package worker

import (
	"strings"
	"testing"
	"time"

	"raiderfleet/subjects"
)

const ghost subjects.Raider = "ghost"

// ghosts is a session of a raider that nobody serves.
func (f *fleet) ghosts() *session {
	f.t.Helper()
	return f.session(func(m *subjects.SessionMeta) { m.Raider = ghost })
}

func (f *fleet) putNode(role subjects.NodeRole, i subjects.Instance, state subjects.NodeState, raiders ...subjects.Raider) {
	f.t.Helper()
	n := subjects.Node{Role: role, Instance: i, State: state, Raiders: raiders}
	if _, err := f.b.SetJSON(f.t.Context(), f.f.NodesBucket(), subjects.NodeKey(i), n, 0); err != nil {
		f.t.Fatal(err)
	}
}

// sweeps is a sweeper whose time the test moves.
type sweeps struct {
	w   *testWorker
	o   *orphans
	now time.Time
}

// pass lets time pass, with a look every ack_wait.
func (s *sweeps) pass(t *testing.T, beats int) {
	t.Helper()
	for range beats {
		s.now = s.now.Add(s.w.b.AckWait())
		if err := s.w.sweepOrphans(t.Context(), s.o, s.now); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fleet) sweeper() *sweeps {
	f.t.Helper()
	s := &sweeps{w: f.idleWorker(nil), o: &orphans{}, now: time.Now()}
	s.pass(f.t, 1)
	return s
}

// A prompt whose raider has gone from the fleet is refused, once, and not too soon.
func TestAPromptOfARaiderThatIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	told := f.watchFleet()
	s := f.ghosts()
	first, _ := s.store("note ran")
	second, _ := s.store("note ran")
	ours := f.session(nil)
	own, _ := ours.store("say hello")
	sweep := f.sweeper()
	sweep.pass(t, orphanBeats-1)
	if r := f.record(first); r.State != "" {
		t.Fatalf("refused too soon: %+v", r)
	}
	sweep.pass(t, 3)
	for _, p := range []subjects.PromptID{first, second} {
		r := f.want(p, subjects.RunRefused, "no worker serves raider ghost", time.Second)
		if r.Session != s.meta.Session || r.Principal != s.meta.Principal || r.Raider != ghost || r.Lane != s.meta.Lane || r.Owner.Instance != "" || r.Outcome.Prompt != p {
			t.Errorf("record %+v", r)
		}
		if n := s.outcomes(p); n != 1 {
			t.Errorf("%d outcome events", n)
		}
		if e := told.await(subjects.RaiderRefused, p); e.Outcome != subjects.RunRefused || e.Session != s.meta.Session {
			t.Errorf("event %+v", e)
		}
		if rec, err := f.b.Get(t.Context(), f.f.RunsBucket(), subjects.RunKey(p)); err != nil || rec.TTL != subjects.RunTTL {
			t.Errorf("record with TTL %v, %v", rec.TTL, err)
		}
	}
	s.emptied()
	// What the sweeper itself serves waits for ever.
	if r := f.record(own); r.State != "" {
		t.Errorf("refused: %+v", r)
	}
	// And the next worker that serves the raider finds nothing to run.
	f.run(func(c *Config) { c.Raiders[0].Name = ghost })
	f.want(s.prompt("say hello"), subjects.RunCompleted, "", 10*time.Second)
	if len(f.notes("ran")) != 0 {
		t.Error("a refused prompt was run")
	}
}

// As long as somebody knows the raider its prompts wait; the time counts from then on.
func TestAPromptOfARaiderThatIsKnownWaits(t *testing.T) {
	t.Parallel()
	for name, role := range map[string]subjects.NodeRole{"by a worker": subjects.RoleWorker, "by a front door": subjects.RoleFrontDoor} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2*time.Second)
			p, _ := f.ghosts().store("note ran")
			waits := func() {
				t.Helper()
				if r := f.record(p); r.State != "" {
					t.Fatalf("refused: %+v", r)
				}
			}
			f.putNode(role, "n1-abc", subjects.NodeUp, bjorn, ghost)
			sweep := f.sweeper()
			sweep.pass(t, 3*orphanBeats)
			waits()
			f.putNode(role, "n1-abc", subjects.NodeGoodbye, bjorn, ghost)
			sweep.pass(t, orphanBeats-1)
			waits()
			// It is back for a moment.
			f.putNode(role, "n1-abc", subjects.NodeUp, ghost)
			sweep.pass(t, 1)
			f.putNode(role, "n1-abc", subjects.NodeUp, bjorn)
			sweep.pass(t, orphanBeats)
			waits()
			// Nobody has looked for long.
			sweep.now = sweep.now.Add(time.Hour)
			sweep.pass(t, orphanBeats)
			waits()
			sweep.pass(t, 1)
			f.want(p, subjects.RunRefused, "ghost", time.Second)
		})
	}
}

// What became of a prompt of such a raider before stays the truth.
func TestAPromptOfARaiderThatIsGoneKeepsItsRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.ghosts()
	lost, _ := s.store("note ran")
	f.putRecord(lost, s.runningUnder(subjects.Owner{Instance: "dead-1", Epoch: 3}, 1))
	closed := f.putAsk(s, lost, subjects.Owner{Instance: "dead-1", Epoch: 3})
	runs, _ := s.store("note ran")
	f.putRecord(runs, s.runningUnder(subjects.Owner{Instance: "w9-abc", Epoch: 4}, 1))
	f.putNode(subjects.RoleWorker, "w9-abc", subjects.NodeDraining, bjorn)
	open := f.putAsk(s, runs, subjects.Owner{Instance: "w9-abc", Epoch: 4})
	cancelled, _ := s.store("note ran")
	r := s.runningUnder(subjects.Owner{}, 0)
	r.State, r.Outcome = subjects.RunCancelled, &subjects.Outcome{Prompt: cancelled, State: subjects.RunCancelled}
	f.putRecord(cancelled, r)
	garbage, _ := s.store("note ran")
	f.put("$KV."+f.f.RunsBucket()+"."+subjects.RunKey(garbage), nil, []byte("{"))
	f.sweeper().pass(t, orphanBeats+2)

	f.want(garbage, subjects.RunFailed, "can't be read", time.Second)
	if r := f.want(lost, subjects.RunFailed, "worker dead-1 was lost", time.Second); r.Outcome.Worker != "dead-1" || r.Outcome.LastEpoch != 3 {
		t.Errorf("outcome %+v", r.Outcome)
	}
	if s.entry(closed) || !s.entry(open) || s.kinds()[subjects.EventAskDone] != 1 {
		t.Errorf("the lost one's ask is there: %v; the other's: %v; events: %v", s.entry(closed), s.entry(open), s.kinds())
	}
	f.want(cancelled, subjects.RunCancelled, "", time.Second)
	if r := f.record(runs); r.State != subjects.RunRunning {
		t.Errorf("a run of a worker that lives was ended: %+v", r)
	}
	for p, want := range map[subjects.PromptID]int{lost: 1, cancelled: 1, runs: 0} {
		if n := s.outcomes(p); n != want {
			t.Errorf("%d outcome events", n)
		}
	}
	m, err := f.b.Next(t.Context(), f.f.BacklogStream(), f.f.BacklogLane(ghost, s.meta.Lane), 1)
	if err != nil || !strings.Contains(m.Header.Get(subjects.HeaderPrompt), string(runs)) {
		t.Errorf("first in the backlog is %v, %v", m.Header, err)
	}
}

// A running worker does it all by itself.
func TestTheSweepRefusesOrphans(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	f.run(nil)
	p, _ := f.ghosts().store("note ran")
	f.want(p, subjects.RunRefused, "ghost", (orphanBeats+5)*f.ackWait)
}
