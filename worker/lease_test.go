package worker

import (
	"slices"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// live starts a prompt that waits for the file "go" and returns its raider's pid.
func (s *session) live() (subjects.PromptID, int) {
	s.f.t.Helper()
	p := s.prompt("note pid; say begun; wait %s", s.f.path("go"))
	return p, s.f.noted("pid", 1)
}

func TestTheLeaseIsRenewedByWritingTheClaim(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1200*time.Millisecond)
	w := f.run(nil)
	s := f.session(nil)
	owns := f.watch(s.own(), nil)
	p, _ := s.live()
	epoch := w.owned(s.meta.Lane).owner().Epoch
	natstest.Eventually(t, 5*time.Second, "seven claims", func() (bool, any) { return len(owns.all()) >= 7, owns.types() })
	seen := owns.all()
	for i, o := range seen[1:] {
		if o.own.Type != subjects.OwnClaim || o.own.Owner != (subjects.Owner{Instance: w.Instance(), Epoch: epoch}) {
			t.Fatalf("renewal %d is %s, want a claim of epoch %d", i, o.body, epoch)
		}
	}
	// Six intervals of ack_wait/3; a late one is followed by none that makes up for it.
	if took := seen[6].at.Sub(seen[0].at); took < 19*f.ackWait/10 || took > 3*f.ackWait {
		t.Fatalf("six renewals took %v, ack_wait is %v", took, f.ackWait)
	}
	if _, seq := s.lastOwn(w); seq <= epoch {
		t.Fatalf("the own subject's last sequence is %d, the epoch %d", seq, epoch)
	}
	f.touch("go")
	f.want(p, subjects.RunCompleted, "", 5*time.Second)
}

func TestARenewalThatFindsAnotherOwnerKillsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, "stubborn") })
	s := f.session(nil)
	p, pid := s.live()
	natstest.Eventually(t, 5*time.Second, "first chunk", func() (bool, any) { return len(s.said()) == 1, s.kinds() })
	l := w.owned(s.meta.Lane)
	owns := f.watch(s.own(), nil)
	_, theirs := s.deadClaim()
	// The next renewal comes after ack_wait/3 and kills; the lease would last 0.9.
	begin := shim.Now()
	gone := f.gone(pid, 10*time.Second)
	if took := time.Duration(gone - begin); took > 6*f.ackWait/10 {
		t.Fatalf("the raider was gone %v after another claimed its lane", took)
	}
	natstest.Eventually(t, 5*time.Second, "the lane leaves the table", func() (bool, any) { return w.owned(s.meta.Lane) != l, "in the table" })
	w.stop()
	<-w.ended
	// The renewal that was refused is seen too; a release after it must not be.
	if slices.Contains(owns.types(), subjects.OwnReleased) {
		t.Fatalf("sent: %v", owns.types())
	}
	if own, seq := s.lastOwn(w); seq != theirs {
		t.Fatalf("written by the one who lost: %+v", own)
	}
	if r := f.record(p); r.State != subjects.RunRunning {
		t.Fatalf("run record: %s", r.State)
	}
	if n := s.outcomes(p); n != 0 {
		t.Fatalf("%d outcome events", n)
	}
}

func TestARenewalThatFindsABidWritesTheClaimOverIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1500*time.Millisecond)
	w := f.run(nil)
	s := f.session(nil)
	p, pid := s.live()
	owner := w.owned(s.meta.Lane).owner()
	owns := f.watch(s.own(), nil)
	s.writeOwn(subjects.Own{Type: subjects.OwnBid, Owner: owner, Bidder: "other-1"})
	natstest.Eventually(t, f.ackWait, "the claim over the bid", func() (bool, any) {
		own, _ := s.lastOwn(w)
		return own == subjects.Own{Type: subjects.OwnClaim, Owner: owner}, own
	})
	// The renewal that was refused is seen, then at once the one over the bid.
	natstest.Eventually(t, f.ackWait, "both are seen", func() (bool, any) { return len(owns.all()) >= 3, owns.types() })
	if seen := owns.all(); seen[2].at.Sub(seen[1].at) > f.ackWait/6 {
		t.Fatalf("the claim over the bid came %v after the refused one", seen[2].at.Sub(seen[1].at))
	}
	if !alive(pid) {
		t.Fatal("the raider was killed by a bid")
	}
	f.touch("go")
	f.want(p, subjects.RunCompleted, "", 5*time.Second)
}

func TestARunOutlivesTheConsumerOfItsBaton(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	w := f.run(nil)
	s := f.session(nil)
	p, pid := s.live()
	owns := f.watch(s.own(), nil)
	consumer := f.b.Layout().ReadyConsumer(bjorn, subjects.AnyClass, 0).Name
	if err := f.b.JetStream().DeleteConsumer(t.Context(), f.f.ReadyStream(), consumer); err != nil {
		t.Fatal(err)
	}
	// Longer than a lease that was renewed with the baton would last.
	deleted := time.Now()
	natstest.Eventually(t, 10*time.Second, "renewals go on", func() (bool, any) {
		seen := owns.all()
		return len(seen) > 0 && seen[len(seen)-1].at.Sub(deleted) > 3*f.ackWait/2, owns.types()
	})
	if !alive(pid) {
		t.Fatal("the raider was killed")
	}
	f.touch("go")
	r := f.want(p, subjects.RunCompleted, "", 5*time.Second)
	if r.Owner.Instance != w.Instance() || len(f.notes("pid")) != 1 {
		t.Fatalf("run by %s, started %d times", r.Owner.Instance, len(f.notes("pid")))
	}
}

func TestWithoutNATSTheRaiderIsGoneWithinAckWait(t *testing.T) {
	t.Parallel()
	node := natstest.Single(t)
	layout := natstest.Layout(1)
	layout.Memory = false
	f := newFleetAt(t, node.URL(), layout, 1500*time.Millisecond)
	w := f.run(nil)
	s := f.session(nil)
	p, pid := s.live()
	cut := shim.Now()
	node.Stop()
	gone := f.gone(pid, 10*time.Second)
	if took := time.Duration(gone - cut); took > f.ackWait {
		t.Fatalf("the raider was gone %v after the link was cut, ack_wait is %v", took, f.ackWait)
	}
	// The lease never comes back: with the server back, the lane is taken anew and the
	// run is known to be lost.
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	<-w.b.Up()
	<-f.b.Up()
	s.baton()
	f.want(p, subjects.RunFailed, "was lost while it ran this prompt", 3*f.ackWait+5*time.Second)
	if len(f.notes("pid")) != 1 {
		t.Fatalf("run %d times", len(f.notes("pid")))
	}
}

func TestANewerOwnersRecordStopsTheOlderOne(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(nil)
	newer := subjects.Owner{Instance: "newer-1", Epoch: 1 << 40}

	// At the end: the record was taken over while the raider ran.
	s := f.session(nil)
	p, _ := s.live()
	l := w.owned(s.meta.Lane)
	r := f.record(p)
	r.Owner = newer
	if _, err := f.b.SetJSON(t.Context(), f.f.RunsBucket(), subjects.RunKey(p), r, 0); err != nil {
		t.Fatal(err)
	}
	f.touch("go")
	natstest.Eventually(t, 5*time.Second, "the lane is lost", func() (bool, any) { return w.owned(s.meta.Lane) != l, "in the table" })

	// At the begin: the prompt's record names a newer owner already.
	s2 := f.session(nil)
	p2, _ := s2.store("note second")
	r = subjects.RunRecord{State: subjects.RunRunning, Session: s2.meta.Session, Raider: bjorn, Lane: s2.meta.Lane, Owner: newer, Attempt: 1}
	if _, err := f.b.SetJSON(t.Context(), f.f.RunsBucket(), subjects.RunKey(p2), r, 0); err != nil {
		t.Fatal(err)
	}
	owns := f.watch(s2.own(), nil)
	s2.baton()
	natstest.Eventually(t, 5*time.Second, "the lane is claimed and lost", func() (bool, any) {
		return len(owns.all()) > 0 && w.owned(s2.meta.Lane) == nil, owns.types()
	})
	for _, x := range []struct {
		s *session
		p subjects.PromptID
	}{{s, p}, {s2, p2}} {
		if n := x.s.outcomes(x.p); n != 0 {
			t.Fatalf("%d outcome events", n)
		}
		if r := f.record(x.p); r.State != subjects.RunRunning || r.Owner != newer {
			t.Fatalf("record: %+v", r)
		}
	}
	if len(f.notes("second")) != 0 {
		t.Fatal("the newer owner's prompt was run")
	}
}

// A worker that was frozen wakes with the timers for the renewal and for the end of the
// lease due at once. Whichever it takes, the lease does not come back, and what the shim
// killed meanwhile is no outcome: the next owner says what became of the prompt.
func TestAnExpiredLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(nil)
	s := f.session(nil)
	p, pid := s.live()
	l := w.owned(s.meta.Lane)
	l.mu.Lock()
	l.lease = shim.Now() - 1
	l.mu.Unlock()
	if ok, again := l.renewOnce(); ok || again {
		t.Fatal("an expired lease was renewed")
	}
	<-l.done
	if alive(pid) {
		t.Fatal("the raider runs on")
	}
	f.want(p, subjects.RunFailed, "was lost", 20*time.Second)
}

func TestARaiderKilledByItsDeadlineIsNoOutcome(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(nil)
	s := f.session(nil)
	p, pid := s.live()
	l := w.owned(s.meta.Lane)
	l.mu.Lock()
	proc := l.proc
	l.mu.Unlock()
	proc.setDeadline(shim.Now() + 1)
	f.gone(pid, 10*time.Second)
	<-l.done
	f.want(p, subjects.RunFailed, "was lost", 20*time.Second)
}
