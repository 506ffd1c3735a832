package frontdoor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// told collects the fleet's events.
type told struct {
	t  *testing.T
	mu sync.Mutex // guards the rest
	e  []subjects.FleetEvent
}

func (o *owner) listen() *told {
	o.t.Helper()
	all := &told{t: o.t}
	sub, err := o.b.Conn().Subscribe(o.f.FleetEventAll(), func(m *nats.Msg) {
		var e subjects.FleetEvent
		if err := json.Unmarshal(m.Data, &e); err != nil {
			o.t.Errorf("%s: %v", m.Data, err)
		}
		all.mu.Lock()
		defer all.mu.Unlock()
		all.e = append(all.e, e)
	})
	o.must(err)
	o.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return all
}

// await waits for an event.
func (a *told) await(kind subjects.FleetEventKind, p subjects.PromptID) (e subjects.FleetEvent) {
	a.t.Helper()
	eventually(a.t, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		i := slices.IndexFunc(a.e, func(e subjects.FleetEvent) bool { return e.Kind == kind && e.Prompt == p })
		if i < 0 {
			return fmt.Sprintf("no %s of %q in %+v", kind, p, a.e)
		}
		e = a.e[i]
		return ""
	})
	return e
}

// A prompt that waits is told once with its place, and its cancel too.
func TestWaitingAndCancelAreTold(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	all := o.listen()
	c := connect(t, f, ConnOptions{})
	s := c.session("1bjorn")
	c.prompt(s, "1", "first")
	first := o.take("bjorn", 0)
	c.prompt(s, "2", "second")
	second := o.see("bjorn", first.seq+1)
	e := all.await(subjects.RaiderWaiting, second.h.Prompt)
	if e.Place != 1 || e.Of != 2 || e.Session != s || e.Raider != "bjorn" || e.FrontDoor != f.Instance() || e.Binding != "slot:1bjorn" {
		t.Errorf("waiting: %+v", e)
	}
	if e = all.await(subjects.RaiderQueued, second.h.Prompt); e.FrontDoor != f.Instance() {
		t.Errorf("queued: %+v", e)
	}
	c.cancelSession(s)
	if e = all.await(subjects.RaiderDone, second.h.Prompt); e.Outcome != subjects.RunCancelled || e.Session != s {
		t.Errorf("done: %+v", e)
	}
}

func TestFrontDoorsComeAndGo(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	all := o.listen()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	e := all.await(subjects.FrontDoorJoined, "")
	if e.FrontDoor != f.Instance() || e.Host == "" || e.PID == 0 || len(e.Raiders) != 3 || e.Raiders[0] != "bjorn" {
		t.Errorf("joined: %+v", e)
	}
	cancel()
	running.Wait()
	if e = all.await(subjects.FrontDoorLeft, ""); e.FrontDoor != f.Instance() {
		t.Errorf("left: %+v", e)
	}
}
