package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/internal/policy"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// claimed makes an idle worker the session's lane's owner, with a baton that is there.
func (s *session) claimed(w *testWorker) (*lane, uint64) {
	s.f.t.Helper()
	seq := s.baton()
	l, _, err := w.claim(s.f.t.Context(), s.inHand(w, seq), 0)
	if err != nil {
		s.f.t.Fatal(err)
	}
	return l, seq
}

// A lease counts from the moment before its claim was sent: how long the answer took is not
// the owner's.
func TestTheLeaseCountsFromItsBegin(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Second)
	way := natstest.NewWire(t, f.url)
	w := f.workerAt(way.URL(), nil)
	s := f.session(nil)
	const late = 1500 * time.Millisecond
	way.Slow(late)
	begin := shim.Now()
	check := func(what string, l *lane) {
		t.Helper()
		took, left := time.Duration(shim.Now()-begin), time.Duration(l.lease-begin)
		if took < late || left > 9*f.ackWait/10+late/2 {
			t.Fatalf("the %s took %v, and the lease ends %v after its begin", what, took, left)
		}
	}
	l, _ := s.claimed(w)
	check("claim", l)
	begin = shim.Now()
	if ok, again := l.renewOnce(); !ok || again {
		t.Fatal("not renewed")
	}
	check("renewal", l)
	way.Slow(0)
	letGo(w, l)
}

// An offer is answered 'gone' only when nothing of the lane runs any more; while its tree
// is being killed there is no answer.
func TestGoneMeansThatTheTreeIsGone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w, other := f.idleWorker(nil), f.idleWorker(nil)
	f.answerOffers(w)
	s := f.session(nil)
	l, seq := s.claimed(w)
	l.end(errLeaseLost) // its tree is being killed
	answers := make(chan subjects.OfferAnswer, 1)
	go func() { answers <- other.offer(context.Background(), s.inHand(other, seq), l.owner()) }()
	natstest.Eventually(t, 5*time.Second, "the offer waits", func() (bool, any) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.askers) == 1, len(l.askers)
	})
	select {
	case a := <-answers:
		t.Fatalf("answered %q", a)
	default:
	}
	w.leave(l)
	l.answerAskers()
	if a := <-answers; a != subjects.OfferGone {
		t.Fatalf("then answered %q", a)
	}
	close(l.done)
}

// A raider that takes its time to die: whoever is told 'gone' finds nothing of it.
func TestNothingRunsWhenAnOfferIsAnsweredGone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, "stubborn") })
	other := f.idleWorker(nil)
	s := f.session(nil)
	_, pid := s.live()
	l := w.owned(s.meta.Lane)
	owner := l.owner()
	l.lose("the test")
	natstest.Eventually(t, 10*time.Second, "the answer 'gone'", func() (bool, any) {
		a := other.offer(t.Context(), s.inHand(other, 1), owner)
		if a == subjects.OfferGone && alive(pid) {
			t.Fatal("answered 'gone' while the raider runs")
		}
		return a == subjects.OfferGone, a
	})
}

// Without a link on which the lane was confirmed nothing is started or finished; a renewal
// on the new one lets it go on.
func TestNothingGoesOnOverANewLinkBeforeARenewal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 30*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	l, _ := s.claimed(w)
	if err := l.hold(t.Context()); err != nil {
		t.Fatalf("confirmed on the present link: %v", err)
	}
	broken, breakIt := context.WithCancel(context.Background())
	breakIt()
	l.mu.Lock()
	l.link = broken
	l.mu.Unlock()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	did := false
	if err := l.hold(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("on a broken link: %v", err)
	}
	select {
	case <-l.renew:
	default:
		t.Fatal("nobody was asked to renew")
	}
	go func() { did = true; l.renewOnce() }()
	if err := l.do(func(context.Context) error {
		if !did {
			return errors.New("done before the renewal")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	letGo(w, l)
}

// The state of a session is looked at before a start.
func TestTheSessionsStateIsLookedAtBeforeAStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	f.run(nil)
	for _, state := range []subjects.SessionState{subjects.SessionClosing, subjects.SessionClosed, subjects.SessionDeleted} {
		s := f.session(func(m *subjects.SessionMeta) { m.State = state })
		f.want(s.prompt("note ran"), subjects.RunCancelled, "", 10*time.Second)
	}
	s := f.session(nil)
	p, _ := s.store("note ran")
	if err := f.b.Delete(t.Context(), f.f.SessionsBucket(), subjects.MetaKey(s.meta.Principal, s.meta.Session)); err != nil {
		t.Fatal(err)
	}
	s.baton()
	f.want(p, subjects.RunRefused, "the session is gone", 10*time.Second)
	if n := f.notes("ran"); len(n) != 0 {
		t.Fatalf("it was run: %v", n)
	}
}

// batons are the sequences of the lane's baton in READY; one at most.
func (s *session) batons() (seq uint64) {
	s.f.t.Helper()
	m, err := s.f.b.Last(s.f.t.Context(), s.f.f.ReadyStream(), s.f.f.Ready(s.meta.Raider, subjects.AnyClass, s.meta.Lane))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		s.f.t.Fatal(err)
	}
	return m.Seq
}

// Whoever gives a lane or a baton up looks at the backlog once more: what came in between
// found the baton there, and nobody publishes another one.
func TestABatonIsPublishedAgainWhereSomethingWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 30*time.Second) // the sweep does not come
	w := f.idleWorker(nil)
	for name, giveUp := range map[string]func(*session){
		"release":   func(s *session) { l := w.owned(s.meta.Lane); l.release(); l.abandon() },
		"give back": func(s *session) { l := w.owned(s.meta.Lane); letGo(w, l); w.giveBack(t.Context(), l.bt) },
	} {
		s := f.session(nil)
		_, first := s.claimed(w)
		giveUp(s)
		if seq := s.batons(); seq != 0 {
			t.Fatalf("%s: nothing waits, and the baton %d is there; it was %d", name, seq, first)
		}
		s = f.session(nil)
		_, first = s.claimed(w)
		s.store("say hello")
		giveUp(s)
		if seq := s.batons(); seq <= first {
			t.Fatalf("%s: something waits, the baton is %d; it was %d", name, seq, first)
		}
	}
}

// A lane that wakes where no place is free goes to a host that has one.
func TestAWarmLaneWithoutAPlaceGoesToAFreeHost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 30*time.Second) // nothing but the release brings it there
	w := f.run(func(c *Config) { c.Name, c.Capacity, c.MaxWarm = "full", 1, 4 })
	s := f.session(nil)
	f.want(s.prompt("note first"), subjects.RunCompleted, "", 10*time.Second)
	s.warm(w)
	busy := f.session(nil)
	p, _ := busy.live()
	free := f.run(func(c *Config) { c.Name = "free" })
	r := f.want(s.prompt("note second"), subjects.RunCompleted, "", 10*time.Second)
	if r.Owner.Instance != free.Instance() {
		t.Fatalf("it was run by %s", r.Owner.Instance)
	}
	f.touch("go")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
}

// A prompt is sent only while the lane is confirmed: a worker that is cut off while its
// raider starts sends it when it is back.
func TestTheLaneIsConfirmedBeforeThePrompt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 15*time.Second)
	way := natstest.NewWire(t, f.url)
	w := f.start(f.workerAt(way.URL(), func(c *Config) {
		c.Raiders[0].Command = raiderCommand(t, "slownew", f.path("asked"), f.path("open"))
	}))
	s := f.session(nil)
	p := s.prompt("note ran")
	f.noted("asked", 1) // session/new
	link := w.b.Link()
	way.Cut(true)
	<-link.Done()
	f.touch("open")
	natstest.Eventually(t, 10*time.Second, "the raider has answered", func() (bool, any) {
		_, err := os.Stat(f.path("open.answered"))
		return err == nil, err
	})
	natstest.Stays(t, 300*time.Millisecond, "the prompt is kept back", func() (bool, any) {
		n := f.notes("ran")
		return len(n) == 0, n
	})
	way.Cut(false)
	f.want(p, subjects.RunCompleted, "", 20*time.Second)
	f.noted("ran", 1)
}

// The baton is kept with each renewal, and nothing depends on an answer to that.
func TestARenewalKeepsTheBaton(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 30*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	kept := make(chan string, 10)
	sub, err := f.b.Conn().Subscribe(s.inHand(w, 0).reply, func(m *nats.Msg) { kept <- string(m.Data) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	f.flush(f.b)
	l, _ := s.claimed(w)
	for n := range 3 {
		select {
		case body := <-kept:
			if body != "+WPI" {
				t.Fatalf("beat %d: %q", n, body)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no beat %d", n)
		}
		if n == 2 {
			break
		}
		if ok, again := l.renewOnce(); !ok || again {
			t.Fatal("not renewed")
		}
	}
	letGo(w, l)
}

// Nobody cancels or answers for another principal's session.
func TestControlIsForTheSessionsPrincipal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.run(nil)
	s := f.session(nil)
	p := s.prompt("ask; wait %s", f.path("go"))
	a := s.asked()
	s.control(subjects.ControlRequest{
		Op: subjects.ControlAnswer, Principal: "stranger", Ask: a.Ask, Prompt: p, By: "x",
		Outcome: json.RawMessage(`{"outcome":"selected","optionId":"yes"}`),
	})
	s.control(subjects.ControlRequest{Op: subjects.ControlCancel, Principal: "stranger", Prompt: p})
	if !s.entry(a.Ask) {
		t.Fatal("a stranger's answer was taken")
	}
	if st := w.owned(s.meta.Lane).status(); st.State != "waiting for approval" {
		t.Fatalf("after a stranger's cancel it is %s", st.State)
	}
	s.answer(a.Ask, `{"outcome":"selected","optionId":"yes"}`, "x")
	f.touch("go")
	if told, _ := s.decided(p); told != `{"outcome":{"outcome":"selected","optionId":"yes"}}` {
		t.Fatalf("the raider was told %s", told)
	}
}

// One worker sweeps; when it is gone another one does. Two at once do no harm.
func TestSweepers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	a, b := f.idleWorker(nil), f.idleWorker(nil)
	rev, ok := a.electSweeper(t.Context(), 0)
	if !ok {
		t.Fatal("the first was not elected")
	}
	if _, ok := b.electSweeper(t.Context(), 0); ok {
		t.Fatal("two are elected")
	}
	if rev, ok = a.electSweeper(t.Context(), rev); !ok {
		t.Fatal("the elected one could not go on")
	}
	natstest.Eventually(t, 20*time.Second, "another takes over", func() (bool, any) {
		_, ok := b.electSweeper(t.Context(), 0)
		return ok, "not elected"
	})
	if _, ok := a.electSweeper(t.Context(), rev); ok {
		t.Fatal("the old one is elected, too")
	}
	var sessions []*session
	for range 20 {
		s := f.session(nil)
		s.store("say hello")
		sessions = append(sessions, s)
	}
	var both sync.WaitGroup
	for _, w := range []*testWorker{a, b} {
		both.Go(func() {
			if err := w.sweepLanes(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	for _, s := range sessions {
		if s.batons() == 0 {
			t.Errorf("no baton for %s", s.meta.Lane)
		}
	}
}

// On three replicas, too, the baton that is published right after a release is taken: the
// old one is gone by then.
func TestABatonRightAfterARelease(t *testing.T) {
	t.Parallel()
	nodes := natstest.Cluster(t)
	natstest.WaitHealthy(t, nodes)
	f := newFleetAt(t, natstest.URLs(nodes), natstest.Layout(3), 30*time.Second)
	w := f.run(func(c *Config) { c.Raiders[0].IdleTTL = time.Millisecond })
	rounds := 200
	if testing.Short() {
		rounds = 30
	}
	s := f.session(nil)
	released := make(chan struct{}, 1)
	f.watch(s.own(), func(x watched) {
		if x.own.Type == subjects.OwnReleased {
			released <- struct{}{}
		}
	})
	for n := range rounds {
		p := s.prompt("say hello")
		f.want(p, subjects.RunCompleted, "", 12*time.Second) // the sweep comes after 15 s
		select {
		case <-released:
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: not released", n)
		}
	}
	_ = w
}

// 0 means never: neither is a question refused by time, nor a cancel made worse.
func TestZeroIsNever(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.run(func(c *Config) { c.PermissionTimeout, c.CancelGrace = 0, 0 })
	s := f.session(nil)
	p := s.prompt("ask")
	if a := s.asked(); !a.Deadline.IsZero() {
		t.Fatalf("the question ends at %v", a.Deadline)
	} else {
		s.answer(a.Ask, `{"outcome":"selected","optionId":"no"}`, "x")
	}
	s.decided(p)
	p = s.prompt("note pid; deaf %s", f.path("go"))
	pid := f.noted("pid", 1)
	s.control(subjects.ControlRequest{Op: subjects.ControlCancel, Prompt: p})
	natstest.Stays(t, 500*time.Millisecond, "the raider is left alone", func() (bool, any) { return alive(pid), "killed" })
	if st := w.owned(s.meta.Lane).status(); st.Prompt != p {
		t.Fatalf("it runs %s", st.Prompt)
	}
	f.touch("go")
	f.want(p, subjects.RunCancelled, "", 10*time.Second)
}

// What a raider writes behind its answer, in the same write even, is no part of the turn; what
// it asks there nobody allows, no rule either.
func TestBehindTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	f.run(func(c *Config) { c.Raiders[0].Policy = compiled(t, policy.Config{Allow: []string{"execute(*)"}}) })
	for n := range 20 {
		s := f.session(nil)
		file := fmt.Sprintf("answer%d", n)
		p := s.prompt("say before; behind %s", f.path(file))
		r := f.want(p, subjects.RunCompleted, "", 10*time.Second)
		told := ""
		natstest.Eventually(t, 10*time.Second, "the question is answered", func() (bool, any) {
			text, err := os.ReadFile(f.path(file))
			told = string(text)
			return err == nil && told != "", err
		})
		if told != `{"outcome":{"outcome":"cancelled"}}` {
			t.Fatalf("the raider was told %s", told)
		}
		natstest.Eventually(t, 10*time.Second, "both updates", func() (bool, any) { return len(s.said()) == 2, s.said() })
		for _, e := range s.events() {
			late := e.Kind == subjects.EventUpdate && bytes.Contains(e.Body, []byte(`"late"`))
			if late && (e.Prompt != "" || e.N <= r.Outcome.LastN) || e.Kind == subjects.EventAsk {
				t.Fatalf("the turn ends with n %d; %s of prompt %q has %d", r.Outcome.LastN, e.Kind, e.Prompt, e.N)
			}
		}
	}
}
