package worker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// whole fails unless the session's events of one epoch are n = 1, 2, … without a hole, in
// any order and some of them twice. It returns the last n: the more updates are gathered
// the lower it is.
func (s *session) whole(epoch uint64) uint64 {
	s.f.t.Helper()
	next := uint64(1)
	for _, e := range ordered(s.events()) {
		switch {
		case e.Kind == subjects.EventOutcome || e.Epoch != epoch || e.N == next-1:
		case e.N == next:
			next++
		default:
			s.f.t.Fatalf("after n %d comes %d", next-1, e.N)
		}
	}
	return next - 1
}

func TestEventsOfABrokenLinkAreAllThereInOrder(t *testing.T) {
	t.Parallel()
	node := natstest.Single(t)
	layout := natstest.Layout(1)
	layout.Memory = false
	f := newFleetAt(t, node.URL(), layout, 5*time.Second)
	f.run(nil)
	s := f.session(nil)
	const first, second = 4000, 1000
	p := s.prompt("burst 100; note mid; burst %d; note down; wait %s; burst %d; note sent; wait %s", first, f.path("down"), second, f.path("up"))
	f.noted("mid", 1)
	// Some are in flight, some come while there is no server.
	node.Stop()
	f.touch("down")
	f.noted("sent", 1)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	f.touch("up")
	<-f.b.Up()
	r := f.want(p, subjects.RunCompleted, "", 20*time.Second)
	if last := s.whole(r.Owner.Epoch); r.Outcome.LastN != last {
		t.Fatalf("the outcome names n %d as the last, not %d", r.Outcome.LastN, last)
	}
	said := s.said()
	if len(said) != 100+first+second {
		t.Fatalf("%d chunks", len(said))
	}
	for i, text := range said[100 : 100+first] {
		if text != strconv.Itoa(i) {
			t.Fatalf("chunk %d says %s", i, text)
		}
	}
}

func TestNIsCountedForEachSessionOfASlot(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	// It can load sessions; the replay of one is in the transcript already.
	f.run(func(c *Config) { c.Raiders[0].Command = raiderCommand(t, "load") })
	a, b := f.session(slot("1bjorn")), f.session(slot("1bjorn"))
	var prompts []subjects.PromptID
	for i, s := range []*session{a, b, a, b} {
		p, _ := s.store("say %d; say x", i)
		prompts = append(prompts, p)
	}
	a.baton()
	epochs := map[uint64]bool{}
	for _, p := range prompts {
		epochs[f.want(p, subjects.RunCompleted, "", 10*time.Second).Owner.Epoch] = true
	}
	if len(epochs) != 1 {
		t.Fatalf("served under %d epochs", len(epochs))
	}
	for epoch := range epochs {
		a.whole(epoch)
		b.whole(epoch)
	}
	if got := fmt.Sprint(a.said(), b.said()); got != "[0 x 2 x] [1 x 3 x]" {
		t.Fatalf("said: %s", got)
	}
}

func TestALargeEventTravelsAsAPayload(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	f.run(nil)
	s := f.session(nil)
	size := f.b.MaxInline() + 100_000
	r := f.want(s.prompt("say small; big %d; say after", size), subjects.RunCompleted, "", 20*time.Second)
	if last := s.whole(r.Owner.Epoch); last != 4 {
		t.Fatalf("events up to n %d, want 4", last)
	}
	said := s.said()
	if len(said) != 3 || len(said[1]) != size {
		t.Fatalf("%d chunks, the second of %d bytes, want %d", len(said), len(said[1]), size)
	}
	// The outcome waits for it.
	natstest.Eventually(t, 5*time.Second, "outcome event", func() (bool, any) { return s.kinds()[subjects.EventOutcome] == 1, s.kinds() })
	events := s.events()
	if last := events[len(events)-1]; last.Kind != subjects.EventOutcome {
		t.Fatalf("the last event is %+v", last.EventHeader)
	}
	payloads := 0
	for _, e := range events {
		if e.Payload != "" {
			payloads++
		}
	}
	if payloads != 1 {
		t.Fatalf("%d payloads", payloads)
	}
}

// While NATS takes nothing a run waits, as long as its lease lasts; nothing of it is lost.
func TestARunWaitsForSpace(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	f := newFleetAt(t, server.ClientURL(), natstest.Layout(1), 20*time.Second)
	w := f.run(nil)
	s := f.session(nil)
	p := s.prompt("say before; note first; wait %s; say full; say after", f.path("go"))
	f.noted("first", 1)
	l := w.owned(s.meta.Lane)
	natstest.Eventually(t, 10*time.Second, "what it said first is stored", func() (bool, any) {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return l.out.acked == 2, l.out.acked
	})
	empty := natstest.Fill(t, server)
	f.touch("go")
	waits := func() (bool, any) {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return l.out.index >= 3 && l.out.acked == 2, l.out.acked
	}
	natstest.Eventually(t, 10*time.Second, "it has more to tell", waits)
	natstest.Stays(t, 500*time.Millisecond, "it waits", func() (bool, any) {
		is, _ := waits()
		return is && l.ctx.Err() == nil, l.ctx.Err()
	})
	empty()
	f.want(p, subjects.RunCompleted, "", 15*time.Second)
	if said := s.said(); !slices.Equal(said, []string{"before", "full", "after"}) {
		t.Errorf("it said %q", said)
	}
}

// Where PAYLOADS takes no more by a bound of its own, a note stands for what is too large
// for a message, and the run goes on.
func TestANoteStandsForWhatPayloadsDoesNotTake(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	stream, err := f.b.JetStream().Stream(t.Context(), "OBJ_"+f.f.PayloadsBucket())
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxBytes = 64 << 10
	if _, err := f.b.JetStream().UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	f.run(nil)
	s := f.session(nil)
	f.want(s.prompt("say before; big %d; say after", f.b.MaxInline()), subjects.RunCompleted, "", 10*time.Second)
	said := s.said()
	if len(said) != 3 || said[0] != "before" || !strings.Contains(said[1], "bytes of this conversation could not be kept: PAYLOADS is full") || said[2] != "after" {
		t.Errorf("it said %.300q", said)
	}
}
