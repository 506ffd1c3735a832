package admin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// world is a fleet of records: what workers and front doors would have written.
type world struct {
	t *testing.T
	b *bus.Bus
	f *Fleet
}

func newWorld(t *testing.T) *world {
	t.Helper()
	_, b := natstest.Bus(t)
	return &world{t, b, New(b)}
}

// accept puts a prompt into a slot's lane.
func (w *world) accept(slot string, s subjects.SessionID) subjects.PromptID {
	w.t.Helper()
	raider, _ := subjects.IsSlot(slot)
	lane, err := subjects.SlotLane(slot)
	if err != nil {
		w.t.Fatal(err)
	}
	p := subjects.NewPrompt()
	h := subjects.PromptHeader{Prompt: p, Session: s, Principal: subjects.LocalPrincipal, Kind: subjects.KindPrompt, Priority: "normal"}
	m := &nats.Msg{Subject: w.b.Fleet().Backlog(subjects.Raider(raider), lane, subjects.LocalPrincipal), Header: h.Header(), Data: []byte(`{"prompt":[]}`)}
	if _, err := w.b.Publish(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) node(n subjects.Node) {
	w.t.Helper()
	if _, err := w.b.SetJSON(w.t.Context(), w.b.Fleet().NodesBucket(), subjects.NodeKey(n.Instance), n, time.Minute); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) record(p subjects.PromptID, r subjects.RunRecord) {
	w.t.Helper()
	if _, err := w.b.SetJSON(w.t.Context(), w.b.Fleet().RunsBucket(), subjects.RunKey(p), r, 0); err != nil {
		w.t.Fatal(err)
	}
}

// answer subscribes a worker or lane owner for the test.
func (w *world) answer(subject string, f func(m *nats.Msg)) {
	w.t.Helper()
	sub, err := w.b.Conn().Subscribe(subject, f)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := sub.Unsubscribe(); err != nil {
			w.t.Log(err)
		}
	})
	if err := w.b.Conn().Flush(); err != nil {
		w.t.Fatal(err)
	}
}

func TestWorkersAndLanes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, state := range map[subjects.Instance]subjects.NodeState{
		"w1-a": subjects.NodeUp, "w2-b": subjects.NodeDraining, "w3-c": subjects.NodeGoodbye,
	} {
		w.node(subjects.Node{Role: subjects.RoleWorker, Name: string(name[:2]), Instance: name, State: state, Running: 7})
	}
	w.node(subjects.Node{Role: subjects.RoleFrontDoor, Name: "fd", Instance: "fd-d", State: subjects.NodeUp})
	// The sweep's lease lies in the same bucket and is no node.
	if _, err := w.b.SetJSON(t.Context(), w.b.Fleet().NodesBucket(), "lease.sweep", "w1-a", time.Minute); err != nil {
		t.Fatal(err)
	}
	workers, err := w.f.Workers(t.Context())
	if err != nil || len(workers) != 2 || workers[0].Instance != "w1-a" || workers[1].Instance != "w2-b" {
		t.Fatalf("got %+v, %v", workers, err)
	}
	w.answer(w.b.Fleet().Worker("w1-a"), func(m *nats.Msg) {
		var r subjects.WorkerRequest
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Op != subjects.WorkerLanes {
			t.Errorf("the worker was asked %s", m.Data)
		}
		if err := m.Respond([]byte(`{"lanes":[{"lane":"slot-2bjorn","raider":"bjorn","state":"warm"},{"lane":"slot-1bjorn","raider":"bjorn","state":"running","prompt":"p1"}]}`)); err != nil {
			t.Error(err)
		}
	})
	lanes, silent, err := w.f.Lanes(t.Context())
	if err != nil || len(lanes) != 2 || lanes[0].Lane != "slot-1bjorn" || lanes[1].State != "warm" {
		t.Errorf("lanes %+v, %v", lanes, err)
	}
	if len(silent) != 1 || silent[0] != "w2-b" {
		t.Errorf("silent workers: %q", silent)
	}
	if workers, err = w.f.LiveWorkers(t.Context()); err != nil || workers[0].Running != 1 || workers[0].Warm != 2 || workers[1].Running != 7 {
		t.Errorf("live workers %+v, %v", workers, err)
	}
}

// A worker that does not answer and whose presence is older than it should be.
func TestSilentWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node(subjects.Node{Role: subjects.RoleWorker, Name: "w1", Instance: "w1-a", State: subjects.NodeUp})
	w.node(subjects.Node{Role: subjects.RoleWorker, Name: "w2", Instance: "w2-b", State: subjects.NodeUp})
	w.answer(w.b.Fleet().Worker("w1-a"), func(m *nats.Msg) {
		if err := m.Respond([]byte(`{}`)); err != nil {
			t.Error(err)
		}
	})
	written := time.Now()
	show := func(later time.Duration) string {
		t.Helper()
		now := written.Add(later)
		w.f.now = func() time.Time { return now }
		workers, err := w.f.LiveWorkers(t.Context())
		if err != nil || len(workers) != 2 {
			t.Fatalf("%+v, %v", workers, err)
		}
		for _, x := range workers {
			if d := x.Seen.Sub(written).Abs(); d > 5*time.Second {
				t.Errorf("%s was seen %v from now", x.Instance, d)
			}
		}
		var out strings.Builder
		if err := WriteWorkers(&out, workers, now.Add(time.Second/2)); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := show(natstest.AckWait); strings.Contains(got, "silent") {
		t.Errorf("after one beat:\n%s", got)
	}
	got := show(12 * time.Second)
	if strings.Count(got, "silent") != 1 || !strings.Contains(got, "up, silent for 12s") {
		t.Errorf("after 12 s:\n%s", got)
	}
	if line := strings.Split(got, "\n")[1]; !strings.HasPrefix(line, "w1-a") || strings.Contains(line, "silent") {
		t.Errorf("one that answers: %s", line)
	}
}

func TestQueueSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	queue, err := w.f.Queue(t.Context())
	if err != nil || queue == nil || len(queue) != 0 {
		t.Fatalf("an empty fleet has the queue %+v, %v", queue, err)
	}
	s := subjects.NewSession()
	running, behind := w.accept("1bjorn", s), w.accept("1bjorn", s)
	ends := w.accept("1astrid", s)
	nobody := w.accept("1erik", s)
	full := w.accept("1knut", s)
	starts := w.accept("2bjorn", s)
	w.record(running, subjects.RunRecord{State: subjects.RunRunning, Owner: subjects.Owner{Instance: "w1-a"}})
	w.node(subjects.Node{Role: subjects.RoleWorker, Instance: "w1-a", State: subjects.NodeUp, Capacity: 2, Running: 1, Raiders: []subjects.Raider{"bjorn"}})
	w.node(subjects.Node{Role: subjects.RoleWorker, Instance: "w2-a", State: subjects.NodeUp, Capacity: 1, Running: 1, Raiders: []subjects.Raider{"knut"}})
	w.node(subjects.Node{Role: subjects.RoleWorker, Instance: "w3-a", State: subjects.NodeDraining, Capacity: 1, Raiders: []subjects.Raider{"knut", "astrid"}})
	if queue, err = w.f.Queue(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		prompt subjects.PromptID
		place  int
		why    string
	}{
		{running, 0, "runs"}, {behind, 1, "1 before it"},
		{ends, 0, "worker w3-a is ending, no other serves raider astrid"},
		{nobody, 0, "no worker serves raider erik"},
		{full, 0, "no worker has a free place"},
		{starts, 0, "starts"},
	}
	if len(queue) != len(want) {
		t.Fatalf("the queue has %d prompts, want %d", len(queue), len(want))
	}
	for i, q := range queue {
		if q.Prompt != want[i].prompt || q.Place != want[i].place || q.Why != want[i].why || q.Session != s || q.Since.IsZero() {
			t.Errorf("%d: got %+v, want %+v", i, q, want[i])
		}
	}
	if queue[0].Worker != "w1-a" {
		t.Errorf("the worker is %q", queue[0].Worker)
	}
	w.f.now = func() time.Time { return time.Now().Add(time.Minute) } // nobody is heard of
	if queue, err = w.f.Queue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := queue[len(queue)-1]; last.Why != "worker w1-a is silent, no other serves raider bjorn" {
		t.Errorf("with silent workers: %+v", last)
	}
}

func TestLongQueueIsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := subjects.NewSession()
	// More than the server hands out at once, over two lanes for the limit of one.
	for range 700 {
		w.accept("1bjorn", s)
		w.accept("2bjorn", s)
	}
	queue, err := w.f.Queue(t.Context())
	if err != nil || len(queue) != 1400 || queue[1399].Place != 699 {
		t.Errorf("%d prompts, %v", len(queue), err)
	}
}

func TestCancelWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, other := subjects.NewSession(), subjects.NewSession()
	first, second, others := w.accept("1bjorn", s), w.accept("1bjorn", s), w.accept("1bjorn", other)
	got, err := w.f.Cancel(t.Context(), string(s))
	if err != nil || len(got) != 2 || got[0].Prompt != first || got[1].Prompt != second || got[1].State != subjects.RunCancelled {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, p := range []subjects.PromptID{first, second} {
		var r subjects.RunRecord
		if _, err := w.b.GetJSON(t.Context(), w.b.Fleet().RunsBucket(), subjects.RunKey(p), &r); err != nil || r.State != subjects.RunCancelled || r.Outcome == nil {
			t.Errorf("record %+v, %v", r, err)
		}
		if _, err := w.b.Get(t.Context(), w.b.Fleet().RunsBucket(), subjects.CancelKey(p)); err != nil {
			t.Errorf("no mark: %v", err)
		}
	}
	event, err := w.b.Last(t.Context(), w.b.Fleet().EventsStream(), w.b.Fleet().Event(s))
	if err != nil {
		t.Fatal(err)
	}
	h, err := subjects.ParseEventHeader(event.Header)
	if err != nil || h.Kind != subjects.EventOutcome || h.Prompt != second || h.Epoch != 0 {
		t.Errorf("event %+v, %v", h, err)
	}
	queue, err := w.f.Queue(t.Context())
	if err != nil || len(queue) != 1 || queue[0].Prompt != others {
		t.Errorf("left in the queue: %+v, %v", queue, err)
	}
	if _, err := w.f.Cancel(t.Context(), string(first)); !errors.Is(err, ErrUnknown) {
		t.Errorf("a prompt that has ended: %v", err)
	}
}

func TestCancelRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.accept("1bjorn", subjects.NewSession())
	w.record(p, subjects.RunRecord{State: subjects.RunRunning})
	asked := 0
	w.answer(w.b.Fleet().Control("slot-1bjorn"), func(m *nats.Msg) {
		var r subjects.ControlRequest
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Op != subjects.ControlCancel || r.Prompt != p || r.Principal != subjects.LocalPrincipal {
			t.Errorf("the owner was asked %s", m.Data)
		}
		if _, err := w.b.Get(t.Context(), w.b.Fleet().RunsBucket(), subjects.CancelKey(p)); err != nil {
			t.Errorf("asked before the mark was there: %v", err)
		}
		if asked++; asked > 1 { // the first time nothing comes of it
			w.record(p, subjects.RunRecord{State: subjects.RunCompleted})
		}
		if err := m.Respond([]byte(`{}`)); err != nil {
			t.Error(err)
		}
	})
	got, err := w.f.Cancel(t.Context(), string(p))
	if err != nil || len(got) != 1 || got[0].State != subjects.RunCompleted {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCancelGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.accept("1bjorn", subjects.NewSession())
	w.record(p, subjects.RunRecord{State: subjects.RunRunning})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := w.f.Cancel(ctx, string(p)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var b strings.Builder
	for _, err := range []error{
		WriteLanes(&b, nil, now), WriteQueue(&b, nil, now), WriteWorkers(&b, nil, now),
		WriteLanes(&b, []subjects.LaneStatus{
			{Lane: "slot-1bjorn", Raider: "bjorn", State: "waiting for approval", Since: now.Add(-90 * time.Second), PID: 7, Instance: "w1-a"},
			{Lane: "sess-s1", Raider: "demo", Session: "s1", State: "warm", LastEvent: now.Add(-20 * time.Millisecond)},
		}, now),
		WriteQueue(&b, []Waiting{{Lane: "slot-1bjorn", Place: 2, Since: now.Add(-time.Hour), Why: "2 before it", Prompt: "p1", Session: "s7", Raider: "bear"}, {Why: "runs", Worker: "w1-b"}}, now),
		WriteWorkers(&b, []Worker{{Node: subjects.Node{Instance: "w1-a", Running: 1, Capacity: 2, Raiders: []subjects.Raider{"a", "b"}}}}, now),
		WriteCancelled(&b, []Cancelled{{Prompt: "p1", State: subjects.RunCancelled}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"nothing runs\n", "nothing waits\n", "no worker is there\n",
		"1bjorn", "waiting for approval since 1m30s", "20ms", "1h0m0s", "1/2", "a,b", "p1 cancelled\n", "s7", "bear", "runs, w1-b",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// What only opens a session's raider is no prompt that waits.
func TestQueueHasNoOpens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := subjects.NewSession()
	h := subjects.PromptHeader{Prompt: subjects.NewPrompt(), Session: s, Principal: subjects.LocalPrincipal, Kind: subjects.KindOpen, Priority: "normal"}
	m := &nats.Msg{Subject: w.b.Fleet().Backlog("bjorn", subjects.SessionLane(s), subjects.LocalPrincipal), Header: h.Header()}
	if _, err := w.b.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if queue, err := w.f.Queue(t.Context()); err != nil || len(queue) != 0 {
		t.Errorf("queue %+v, %v", queue, err)
	}
}
