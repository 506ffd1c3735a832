package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func (f *fleet) node(i subjects.Instance) subjects.Node {
	f.t.Helper()
	var n subjects.Node
	if _, err := f.b.GetJSON(f.t.Context(), f.f.NodesBucket(), subjects.NodeKey(i), &n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

func TestDrainLetsLiveRunsFinish(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4*time.Second)
	w := f.run(func(c *Config) { c.DrainTimeout = time.Minute })
	if n := f.node(w.Instance()); n.State != subjects.NodeUp || n.Capacity != 4 || len(n.Raiders) != 1 {
		t.Fatalf("presence: %+v", n)
	}
	warm := f.session(nil)
	f.want(warm.prompt("note warm"), subjects.RunCompleted, "", 10*time.Second)
	warm.warm(w)
	s := f.session(nil)
	p, pid := s.live()
	waits, _ := s.store("note later")
	w.stop()
	// The warm lane goes at once, the live run goes on, and nothing new is begun.
	f.gone(f.noted("warm", 1), 10*time.Second)
	natstest.Eventually(t, 10*time.Second, "presence says draining", func() (bool, any) {
		n := f.node(w.Instance())
		return n.State == subjects.NodeDraining, n.State
	})
	late := f.session(nil)
	latePrompt := late.prompt("note later")
	if !alive(pid) {
		t.Fatal("the live run was ended")
	}
	f.touch("go")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
	<-w.ended
	if w.err != nil {
		t.Fatal(w.err)
	}
	if alive(pid) {
		t.Fatal("a raider is left")
	}
	if n := f.node(w.Instance()); n.State != subjects.NodeGoodbye {
		t.Fatalf("presence: %s", n.State)
	}
	for _, x := range []*session{warm, s} {
		if own, _ := x.lastOwn(w); own.Type != subjects.OwnReleased {
			t.Fatalf("own: %+v", own)
		}
	}
	// What waits is another worker's, at once.
	if len(f.notes("later")) != 0 {
		t.Fatal("a draining worker began a prompt")
	}
	begin := time.Now()
	f.run(nil)
	f.want(waits, subjects.RunCompleted, "", 10*time.Second)
	f.want(latePrompt, subjects.RunCompleted, "", 10*time.Second)
	if took := time.Since(begin); took > f.ackWait {
		t.Fatalf("the next worker needed %v", took)
	}
}

func TestDrainTimeoutFailsTheRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) {
		c.DrainTimeout = 100 * time.Millisecond
		c.Raiders[0].Command = raiderCommand(t, "stubborn")
	})
	s := f.session(nil)
	p, pid := s.live()
	w.stop()
	f.want(p, subjects.RunFailed, "worker "+string(w.Instance())+" was stopped while it ran", 5*time.Second)
	<-w.ended
	if w.err != nil || alive(pid) {
		t.Fatalf("error %v, raider alive: %v", w.err, alive(pid))
	}
	if s.outcomes(p) != 1 {
		t.Fatalf("told %d times", s.outcomes(p))
	}
}

func TestASecondWorkerIsKeptOutOfTheStateDirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	dir := t.TempDir()
	same := func(c *Config) { c.StateDir = dir }
	first := f.run(same)
	second := f.idleWorker(same)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := second.Run(ctx)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "in use by another worker") {
		t.Fatalf("error: %v", err)
	}
	// The directory is free again, and says who had it.
	first.stop()
	<-first.ended
	if lock, err := lockState(t.Context(), dir); err != nil || lock.earlier() != first.Instance() {
		t.Fatalf("error %v", err)
	} else {
		lock.release()
	}
}

func TestAWorkerSaysGoodbyeForTheOneThatDied(t *testing.T) {
	t.Parallel()
	// So long an ack_wait that a wait would be seen.
	f := newFleet(t, 20*time.Second)
	dir := t.TempDir()
	lock, err := lockState(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s := f.session(nil)
	dead, _ := s.deadClaim()
	if err := lock.note(dead.Instance); err != nil {
		t.Fatal(err)
	}
	lock.release()
	p, _ := s.store("say x")
	f.putRecord(p, s.runningUnder(dead, 1))
	f.run(func(c *Config) { c.StateDir = dir })
	if n := f.node(dead.Instance); n.State != subjects.NodeGoodbye {
		t.Fatalf("state %s", n.State)
	}
	s.baton()
	f.want(p, subjects.RunFailed, "worker "+string(dead.Instance)+" was lost", 10*time.Second)
}
