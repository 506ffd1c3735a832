package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// A worker that died between the deletion of the message and the retirement of the record
// left a record for ever: the sweep gives it an end. One whose message is there stays.
func TestTheSweepRetiresRecordsWhoseMessageIsGone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	long := time.Now().Add(-time.Hour)
	record := func(p subjects.PromptID, state subjects.RunState, ended time.Time) subjects.PromptID {
		r := s.runningUnder(subjects.Owner{Instance: "dead-1", Epoch: 3}, 1)
		if r.State = state; state.Ended() {
			r.Ended, r.Outcome = ended, &subjects.Outcome{Prompt: p, State: state}
		}
		f.putRecord(p, r)
		return p
	}
	stored := func() subjects.PromptID { p, _ := s.store("say hello"); return p }
	gone := record(subjects.NewPrompt(), subjects.RunCompleted, long)
	cancelled := record(subjects.NewPrompt(), subjects.RunCancelled, long)
	keep := map[string]subjects.PromptID{
		"its message is there": record(stored(), subjects.RunCancelled, long),
		"it runs":              record(stored(), subjects.RunRunning, long),
		"it ended just now":    record(subjects.NewPrompt(), subjects.RunCompleted, time.Now()),
	}
	if err := w.sweepRecords(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	ttl := func(p subjects.PromptID) time.Duration {
		r, err := f.b.Get(t.Context(), f.f.RunsBucket(), subjects.RunKey(p))
		if err != nil {
			t.Fatal(err)
		}
		return r.TTL
	}
	for _, p := range []subjects.PromptID{gone, cancelled} {
		if got := ttl(p); got != subjects.RunTTL {
			t.Errorf("the record of a prompt that is gone has TTL %v", got)
		}
	}
	if r := f.record(gone); r.State != subjects.RunCompleted || r.Outcome == nil || r.Outcome.Prompt != gone {
		t.Errorf("the retired record is %+v", r)
	}
	for why, p := range keep {
		if got := ttl(p); got != 0 {
			t.Errorf("%s: the record has TTL %v", why, got)
		}
	}
}

// Ten thousand records and as many prompts that wait take longer than an ack_wait to read
// one by one; the sweep gets through all the same, and lanes don't wait for it.
func TestTheSweepGetsThroughManyRecords(t *testing.T) {
	t.Parallel()
	const many, lanes = 10_000, 20
	f := newFleet(t, 500*time.Millisecond)
	f.putNode(subjects.RoleFrontDoor, "fd-abc", subjects.NodeUp, ghost) // so that they wait
	js := f.b.JetStream()
	async := func(m *nats.Msg) {
		t.Helper()
		if _, err := js.PublishMsgAsync(m); err != nil {
			t.Fatal(err)
		}
	}
	s := f.ghosts()
	r := s.runningUnder(subjects.Owner{Instance: "dead-1", Epoch: 3}, 1)
	r.State, r.Ended = subjects.RunCompleted, time.Now().Add(-time.Hour)
	record, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		async(&nats.Msg{Subject: "$KV." + f.f.RunsBucket() + "." + subjects.RunKey(subjects.NewPrompt()), Data: record})
		h := subjects.PromptHeader{Prompt: subjects.NewPrompt(), Session: s.meta.Session, Principal: s.meta.Principal, Kind: subjects.KindPrompt}
		lane := subjects.LaneID(fmt.Sprintf("sess-s%d", i%lanes))
		async(&nats.Msg{Subject: f.f.Backlog(ghost, lane, s.meta.Principal), Header: h.Header()})
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	w := f.idleWorker(nil)
	ctx, stop := context.WithCancel(t.Context())
	var swept sync.WaitGroup
	swept.Go(func() { w.sweep(ctx) })
	defer swept.Wait()
	defer stop()
	natstest.Eventually(t, time.Minute, "all are retired", func() (bool, any) {
		n, err := f.b.LastSeq(t.Context(), "KV_"+f.f.RunsBucket())
		if err != nil {
			t.Fatal(err)
		}
		return n == 2*many, n
	})
	natstest.Eventually(t, time.Minute, "each lane has its baton", func() (bool, any) {
		batons, err := f.b.Subjects(t.Context(), f.f.ReadyStream(), f.f.ReadyAll())
		if err != nil {
			t.Fatal(err)
		}
		return len(batons) == lanes, len(batons)
	})
}

func TestTheSweepDeletesPayloadsNobodyRefersTo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	waits, _ := s.store("say hello")
	gone := subjects.NewPrompt()
	for _, name := range []string{string(waits), string(gone), "event.s1.7.3", "outcome.p1", "transcript.s1.p1"} {
		if err := f.b.PutPayload(t.Context(), name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(later time.Duration) []string {
		t.Helper()
		if err := w.sweepPayloads(t.Context(), time.Now().Add(later)); err != nil {
			t.Fatal(err)
		}
		list, err := f.b.Payloads(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range list {
			names = append(names, p.Name)
		}
		return names
	}
	// Its prompt may be about to be published.
	if left := sweep(0); len(left) != 5 {
		t.Fatalf("new ones are deleted; left: %v", left)
	}
	if left := sweep(2 * time.Hour); len(left) != 4 || slices.Contains(left, string(gone)) {
		t.Fatalf("left after two hours: %v", left)
	}
	// The events' own age; a prompt that waits and a transcript are never too old.
	left := sweep(subjects.EventsAge + 2*time.Hour)
	slices.Sort(left)
	want := []string{string(waits), "transcript.s1.p1"}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Fatalf("left after events' age: %v, want %v", left, want)
	}
	if _, err := f.b.GetPayload(t.Context(), string(gone)); !errors.Is(err, bus.ErrNotFound) {
		t.Fatalf("the deleted one: %v", err)
	}
}
