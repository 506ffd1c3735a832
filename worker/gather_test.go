package worker

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// taken takes events off the log as its publisher does while inFlight are on their way.
func taken(e *eventLog, inFlight int) (all []*event) {
	for {
		ev := e.take(inFlight)
		if ev == nil {
			return all
		}
		all = append(all, ev)
	}
}

// Updates that come while others are on their way travel together, in their order and
// whole; everything else is an event of its own, and stands between them.
func TestUpdatesAreGathered(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	s, other := f.session(nil), f.session(nil)
	l := newLane(w.Worker, s.inHand(w, 1))
	defer l.abandon()
	e := l.out
	add := func(session subjects.SessionID, kind subjects.EventKind, prompt subjects.PromptID, body string) {
		t.Helper()
		if err := e.append(session, kind, prompt, []byte(body), nil); err != nil {
			t.Fatal(err)
		}
	}
	id := s.meta.Session
	add(id, subjects.EventUpdate, "p1", "1")
	if got := taken(e, eagerEvents-1); len(got) != 1 {
		t.Fatalf("with room on the way the first update waits: %d taken", len(got))
	}
	for i := range 5 {
		add(id, subjects.EventUpdate, "p1", strconv.Itoa(i))
	}
	if got := taken(e, eagerEvents); len(got) != 0 {
		t.Fatalf("%d taken, want them gathered", len(got))
	}
	add(id, subjects.EventAsk, "p1", "ask")
	add(id, subjects.EventUpdate, "p1", "after")
	add(id, subjects.EventUpdate, "p2", "another prompt's")
	add(other.meta.Session, subjects.EventUpdate, "p2", "another session's")
	got := taken(e, 0)
	var bodies []string
	for i, ev := range got {
		bodies = append(bodies, string(ev.body))
		if want := uint64(i + 2); ev.session == id && ev.header.N != want {
			t.Errorf("event %d has n %d, want %d", i, ev.header.N, want)
		}
	}
	want := "0\n1\n2\n3\n4|ask|after|another prompt's|another session's"
	if text := strings.Join(bodies, "|"); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

// What is gathered is published without waiting when there is enough of it, and never
// grows beyond what a message takes.
func TestGatheringIsBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	l := newLane(w.Worker, s.inHand(w, 1))
	defer l.abandon()
	line := make([]byte, 1000)
	for range 200 {
		if err := l.out.append(s.meta.Session, subjects.EventUpdate, "p", line, nil); err != nil {
			t.Fatal(err)
		}
	}
	got := taken(l.out, eagerEvents)
	bytes := 0
	for _, ev := range got {
		if len(ev.body) > maxGathered {
			t.Errorf("an event of %d bytes", len(ev.body))
		}
		bytes += len(ev.body)
	}
	if bytes < 200*1000-enoughGathered {
		t.Errorf("%d events with %d bytes are due, the rest waits", len(got), bytes)
	}
	l.out.mu.Lock()
	counted := l.out.bytes
	l.out.mu.Unlock()
	for _, ev := range append(got, taken(l.out, 0)...) {
		l.out.stored(ev, 1)
	}
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if counted < 200*1000 || l.out.bytes != 0 {
		t.Errorf("%d bytes counted, %d left of them when all is stored", counted, l.out.bytes)
	}
}

// A prompt is begun from the message that woke the lane only when it is the lane's next.
func TestHeardIsTheNext(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	l := newLane(w.Worker, f.session(nil).inHand(w, 1))
	defer l.abandon()
	for _, c := range []struct {
		after     uint64
		seq, last string
		want      uint64
	}{
		{after: 0, seq: "7", last: "0", want: 0},  // nothing has been looked at yet
		{after: 5, seq: "7", last: "5", want: 7},  // right behind
		{after: 5, seq: "7", last: "0", want: 7},  // the one before has been deleted
		{after: 5, seq: "7", last: "6", want: 0},  // another one comes first
		{after: 7, seq: "7", last: "5", want: 0},  // has ended here
		{after: 9, seq: "7", last: "5", want: 0},  // long ago
		{after: 5, seq: "x", last: "5", want: 0},  // no message of the server's
		{after: 5, seq: "7", last: "", want: 0},   // as above
		{after: 5, seq: "7", last: "-1", want: 0}, // as above
	} {
		l.after = c.after
		m := &bus.Message{Header: nats.Header{}}
		m.Header.Set(jetstream.SequenceHeader, c.seq)
		m.Header.Set(jetstream.LastSequenceHeader, c.last)
		l.woken.Store(m)
		if got := l.heard(); got.Seq != c.want {
			t.Errorf("%+v: heard %d", c, got.Seq)
		}
		if got := l.heard(); got.Seq != 0 {
			t.Errorf("%+v: heard twice", c)
		}
	}
}

// A slot's prompts are on several subjects, so the message that woke it tells nothing of
// what comes first.
func TestASlotLooks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	l := newLane(w.Worker, f.session(slot("1bjorn")).inHand(w, 1))
	defer l.abandon()
	l.after = 5
	m := &bus.Message{Header: nats.Header{}}
	m.Header.Set(jetstream.SequenceHeader, "7")
	m.Header.Set(jetstream.LastSequenceHeader, "5")
	l.woken.Store(m)
	if got := l.heard(); got.Seq != 0 {
		t.Errorf("a slot begins with %d unseen", got.Seq)
	}
}

// A warm lane whose prompt leaves the backlog before it is begun runs the next one.
func TestWithdrawnBeforeItIsHeard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	f.want(s.prompt("say x"), subjects.RunCompleted, "", 10*time.Second)
	for range 6 {
		p, seq := s.store("say x")
		rec := subjects.RunRecord{State: subjects.RunCancelled, Session: s.meta.Session, Principal: s.meta.Principal}
		_, err := f.b.PutJSON(t.Context(), f.f.RunsBucket(), subjects.RunKey(p), rec, 0, 0)
		cancelled := err == nil
		if err := f.b.DeleteMessage(t.Context(), f.f.BacklogStream(), seq); cancelled && err != nil {
			t.Fatal(err)
		}
		f.want(s.prompt("say x"), subjects.RunCompleted, "", 10*time.Second)
		if r := f.ended(p, 10*time.Second); cancelled && r.State != subjects.RunCancelled {
			t.Errorf("withdrawn, and %s", r.State)
		}
	}
}

// A long turn is told in pieces that a client takes, and whole.
func TestStoryIsTold(t *testing.T) {
	t.Parallel()
	s := newStory(subjects.PromptHeader{Session: "s1"}, []byte("[]"))
	text := strings.Repeat("q", 10_000)
	for range 100 {
		s.update(subjects.TextChunk("s1", "agent_message_chunk", "", text))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeChunkLocked()
	whole := 0
	for _, u := range s.entry.Updates {
		if len(u) > maxChunk+1000 {
			t.Errorf("an update of %d bytes", len(u))
		}
		whole += strings.Count(string(u), "q")
	}
	if whole != 1_000_000 || len(s.entry.Updates) > 5 {
		t.Errorf("%d bytes in %d updates", whole, len(s.entry.Updates))
	}
}
