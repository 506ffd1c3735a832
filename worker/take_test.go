package worker

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// letGo ends a lane that a test has claimed and does not serve.
func letGo(w *testWorker, l *lane) {
	w.leave(l)
	l.abandon()
}

func (s *session) lastOwn(w *testWorker) (subjects.Own, uint64) {
	s.f.t.Helper()
	own, seq, err := w.readOwn(s.f.t.Context(), s.inHand(w, 0))
	if err != nil {
		s.f.t.Fatal(err)
	}
	return own, seq
}

func TestTwoWorkersWithTheSameBatonOneOwner(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.session(nil)
	workers := []*testWorker{f.idleWorker(nil), f.idleWorker(nil)}
	// Both have read that there is no owner.
	var wait sync.WaitGroup
	lanes, errs := make([]*lane, 2), make([]error, 2)
	for i, w := range workers {
		wait.Go(func() { lanes[i], _, errs[i] = w.claim(t.Context(), s.inHand(w, 1), 0) })
	}
	wait.Wait()
	owners := 0
	for i, w := range workers {
		if lanes[i] == nil {
			if errs[i] == nil || w.owned(s.meta.Lane) != nil {
				t.Fatalf("the loser: error %v, lane in its table: %v", errs[i], w.owned(s.meta.Lane) != nil)
			}
			continue
		}
		owners++
		if own, seq := s.lastOwn(w); own.Owner.Instance != w.Instance() || own.Owner.Epoch != seq || lanes[i].epoch != seq {
			t.Fatalf("the owner has epoch %d, stored is %+v under %d", lanes[i].epoch, own, seq)
		}
		letGo(w, lanes[i])
	}
	if owners != 1 {
		t.Fatalf("%d owners", owners)
	}
}

func TestClaimWithAStaleExpectationLeavesTheTable(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.session(nil)
	owner, seq := s.deadClaim()
	w := f.idleWorker(nil)
	for _, expect := range []uint64{0, seq - 1, seq + 1} {
		if seq-1 == 0 && expect == 0 {
			continue
		}
		l, again, err := w.claim(t.Context(), s.inHand(w, 1), expect)
		if l != nil || !again || !errors.Is(err, bus.ErrConflict) {
			t.Fatalf("claim expecting %d: lane %v, again %v, error %v", expect, l != nil, again, err)
		}
		if w.owned(s.meta.Lane) != nil {
			t.Fatal("the lane is still in the table")
		}
	}
	if own, have := s.lastOwn(w); have != seq || own.Owner != owner {
		t.Fatalf("the owner is now %+v", own)
	}
}

func TestOfferAtTheMomentOfTheClaimIsAnsweredMine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	f.answerOffers(w)
	other := f.idleWorker(nil)
	for range 200 {
		s := f.session(nil)
		bt := s.inHand(w, 1)
		type seen struct {
			inTable bool
			answer  subjects.OfferAnswer
		}
		got := make(chan seen, 1)
		sub, err := f.b.Conn().Subscribe(s.own(), func(*nats.Msg) {
			x := seen{inTable: w.owned(s.meta.Lane) != nil}
			x.answer = other.offer(t.Context(), bt, subjects.Owner{Instance: w.Instance()})
			got <- x
		})
		if err != nil {
			t.Fatal(err)
		}
		f.flush(f.b)
		l, _, err := w.claim(t.Context(), bt, 0)
		if err != nil {
			t.Fatal(err)
		}
		if x := <-got; !x.inTable || x.answer != subjects.OfferMine {
			t.Fatalf("when the claim was seen, the lane was in the table: %v; an offer was answered %q", x.inTable, x.answer)
		}
		_ = sub.Unsubscribe()
		letGo(w, l)
	}
}

func TestReleaseDeletesTheBatonAndNeverAcknowledges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	acks := f.watch("$JS.ACK.>", nil)
	f.run(func(c *Config) { c.IdleTTL = 20 * time.Millisecond })
	s := f.session(nil)
	owns := f.watch(s.own(), nil)
	released := func(n int) func() (bool, any) {
		return func() (bool, any) {
			got := 0
			for _, o := range owns.types() {
				if o == subjects.OwnReleased {
					got++
				}
			}
			return got == n, owns.types()
		}
	}
	var batons []uint64
	for i := range 3 {
		p, _ := s.store("say %d", i)
		// The release before deletes the baton just after it is seen, and may see this prompt
		// then and publish a baton itself.
		natstest.Eventually(t, 10*time.Second, "a new baton is accepted", func() (bool, any) {
			seq := s.baton()
			batons = append(batons, seq)
			return seq != 0 || f.record(p).State != "", batons
		})
		f.want(p, subjects.RunCompleted, "", 5*time.Second)
		natstest.Eventually(t, 5*time.Second, "released", released(i+1))
	}
	if len(acks.all()) == 0 {
		t.Fatal("no baton was extended")
	}
	for _, a := range acks.all() {
		if a.body != "+WPI" {
			t.Fatalf("a baton was answered %q", a.body)
		}
	}
}

func TestBatonOfALiveLaneGoesToItsOwner(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w1 := f.run(func(c *Config) { c.Capacity = 1 })
	s := f.session(nil)
	owns := f.watch(s.own(), nil)
	p := s.prompt("note pid; wait %s", f.path("go"))
	// The script's note is relative to the session's directory.
	f.noted("pid", 1)
	l := w1.owned(s.meta.Lane)
	l.mu.Lock()
	first := l.bt.seq
	l.mu.Unlock()
	// A server that crashed has forgotten the baton; a second one is published and
	// pulled by another worker.
	if err := f.b.DeleteMessage(t.Context(), f.f.ReadyStream(), first); err != nil {
		t.Fatal(err)
	}
	second := s.baton()
	if second == 0 {
		t.Fatal("second baton refused")
	}
	w2 := f.run(func(c *Config) { c.Capacity = 1 })
	natstest.Eventually(t, 5*time.Second, "the owner adopts the second baton", func() (bool, any) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.bt.seq == second, l.bt.seq
	})
	// A lower one, late, changes nothing.
	if got := w2.offer(t.Context(), s.inHand(w2, first), l.owner()); got != subjects.OfferMine {
		t.Fatalf("offer answered %q", got)
	}
	l.mu.Lock()
	seq := l.bt.seq
	l.mu.Unlock()
	if seq != second {
		t.Fatalf("a lower baton was adopted: %d", seq)
	}
	f.touch("go")
	r := f.want(p, subjects.RunCompleted, "", 5*time.Second)
	if r.Owner.Instance != w1.Instance() || len(f.notes("pid")) != 1 {
		t.Fatalf("run by %s, started %d times", r.Owner.Instance, len(f.notes("pid")))
	}
	for _, o := range owns.all() {
		if o.own.Type != subjects.OwnClaim || o.own.Owner.Instance != w1.Instance() {
			t.Fatalf("the lane moved: %s", o.body)
		}
	}
}

func TestClaimOverASilentOwnerWaitsAfterABid(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	s := f.session(nil)
	owner, _ := s.deadClaim()
	w := f.run(nil)
	owns := f.watch(s.own(), nil)
	p := s.prompt("say hello")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
	seen := owns.all()
	if len(seen) < 2 || seen[0].own.Type != subjects.OwnBid || seen[0].own.Bidder != w.Instance() || seen[0].own.Owner != owner {
		t.Fatalf("first a bid over %v is due; seen: %+v", owner, seen)
	}
	if seen[1].own.Type != subjects.OwnClaim || seen[1].own.Owner.Instance != w.Instance() {
		t.Fatalf("second the claim is due: %s", seen[1].body)
	}
	if waited := seen[1].at.Sub(seen[0].at); waited < f.ackWait {
		t.Fatalf("claimed %v after the bid, ack_wait is %v", waited, f.ackWait)
	}
}

func TestBidderLetsGoWhenTheOwnerAnswersTheBid(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	s := f.session(nil)
	owner, _ := s.deadClaim()
	w := f.idleWorker(nil)
	var answer sync.Once
	owns := f.watch(s.own(), func(x watched) {
		if x.own.Type == subjects.OwnBid {
			answer.Do(func() { s.writeOwn(subjects.Own{Type: subjects.OwnClaim, Owner: owner}) })
		}
	})
	l, again, err := w.tryTake(t.Context(), s.inHand(w, 1))
	if l != nil || again || !errors.Is(err, errLetGo) {
		t.Fatalf("lane %v, again %v, error %v", l != nil, again, err)
	}
	natstest.Eventually(t, time.Second, "the owner's claim is seen", func() (bool, any) { return len(owns.all()) == 2, owns.types() })
	if got, want := owns.types(), []subjects.OwnType{subjects.OwnBid, subjects.OwnClaim}; !slices.Equal(got, want) {
		t.Fatalf("written: %v, want %v", got, want)
	}
	if own, _ := s.lastOwn(w); own.Owner != owner {
		t.Fatalf("owner is %+v", own)
	}
}

func TestABidIsNeverBidOver(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	s := f.session(nil)
	owner, _ := s.deadClaim()
	bid := s.writeOwn(subjects.Own{Type: subjects.OwnBid, Owner: owner, Bidder: "other-1"})
	w := f.idleWorker(nil)
	owns := f.watch(s.own(), nil)
	begin := time.Now()
	l, _, err := w.tryTake(t.Context(), s.inHand(w, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer letGo(w, l)
	if waited := time.Since(begin); waited < f.ackWait {
		t.Fatalf("claimed after %v, ack_wait is %v", waited, f.ackWait)
	}
	natstest.Eventually(t, time.Second, "the claim is seen", func() (bool, any) { return len(owns.all()) > 0, owns.types() })
	if got := owns.types(); !slices.Equal(got, []subjects.OwnType{subjects.OwnClaim}) {
		t.Fatalf("written over the bid %d: %v", bid, got)
	}
}

func TestClaimAfterABidExpectsTheBid(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	s := f.session(nil)
	// The owner writes its claim over the bid and then, wrongly late, says 'gone': only
	// the expectation keeps the bidder out.
	owner := subjects.Owner{Instance: "owner-1"}
	owner.Epoch = s.writeOwn(subjects.Own{Type: subjects.OwnClaim, Owner: owner})
	s.writeOwn(subjects.Own{Type: subjects.OwnBid, Owner: owner, Bidder: "other-1"})
	gone, err := json.Marshal(subjects.WorkerReply{Offer: subjects.OfferGone})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := f.b.Conn().Subscribe(f.f.Worker(owner.Instance), func(m *nats.Msg) {
		s.writeOwn(subjects.Own{Type: subjects.OwnClaim, Owner: owner})
		_ = m.Respond(gone)
	})
	if err != nil {
		t.Fatal(err)
	}
	f.flush(f.b)
	defer func() { _ = sub.Unsubscribe() }()
	w := f.idleWorker(nil)
	l, again, err := w.tryTake(t.Context(), s.inHand(w, 1))
	if l != nil || !again || !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("lane %v, again %v, error %v", l != nil, again, err)
	}
	if own, _ := s.lastOwn(w); own.Owner != owner {
		t.Fatalf("owner is %+v", own)
	}
}

func TestAfterAGoodbyeTheClaimComesAtOnce(t *testing.T) {
	t.Parallel()
	// So long an ack_wait that a wait would be seen.
	f := newFleet(t, 20*time.Second)
	s := f.session(nil)
	owner, _ := s.deadClaim()
	node := subjects.Node{Role: subjects.RoleWorker, Instance: owner.Instance, State: subjects.NodeGoodbye}
	if _, err := f.b.SetJSON(t.Context(), f.f.NodesBucket(), subjects.NodeKey(owner.Instance), node, subjects.GoodbyeTTL); err != nil {
		t.Fatal(err)
	}
	w := f.run(nil)
	owns := f.watch(s.own(), nil)
	p := s.prompt("say hello")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
	if first := owns.all()[0].own; first.Type != subjects.OwnClaim || first.Owner.Instance != w.Instance() {
		t.Fatalf("first written: %+v", first)
	}
}
