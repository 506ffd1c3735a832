package admin

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := subjects.NewSession()
	ended := subjects.NewPrompt()
	w.record(ended, subjects.RunRecord{State: subjects.RunFailed, Session: s, Outcome: &subjects.Outcome{State: subjects.RunFailed, Error: &subjects.RunError{Message: "full"}}})
	if e, err := w.f.Wait(t.Context(), string(ended)); err != nil || e.State != subjects.RunFailed || e.Error == nil || e.Error.Message != "full" || e.Session != s {
		t.Errorf("got %+v, %v", e, err)
	}
	for _, id := range []string{"nobody", "not a prompt", string(subjects.NewPrompt())} {
		if _, err := w.f.Wait(t.Context(), id); !errors.Is(err, ErrNoPrompt) {
			t.Errorf("%s: %v", id, err)
		}
	}
	// One that waits, and one that runs: their ends are seen.
	waits, runs := w.accept("1bjorn", s), subjects.NewPrompt()
	w.record(runs, subjects.RunRecord{State: subjects.RunRunning, Session: s})
	for _, p := range []subjects.PromptID{waits, runs} {
		got := make(chan error, 1)
		go func() {
			e, err := w.f.Wait(t.Context(), string(p))
			if err == nil && e.State != subjects.RunCompleted {
				err = errors.New(string(e.State))
			}
			got <- err
		}()
		w.record(p, subjects.RunRecord{State: subjects.RunCompleted, Session: s})
		if err := <-got; err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.f.Wait(ctx, string(w.accept("1bjorn", s))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
}

// An outcome that is too large for a message is read whole.
func TestWaitReadsALargeOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	whole := subjects.Outcome{State: subjects.RunFailed, Error: &subjects.RunError{Message: "all of it"}}
	body, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.b.PutPayload(t.Context(), "outcome.p", body); err != nil {
		t.Fatal(err)
	}
	p := subjects.NewPrompt()
	w.record(p, subjects.RunRecord{State: subjects.RunFailed, Outcome: &subjects.Outcome{State: subjects.RunFailed, Error: &subjects.RunError{Message: "all…"}, Payload: "outcome.p"}})
	if e, err := w.f.Wait(t.Context(), string(p)); err != nil || e.Error.Message != "all of it" {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestAcceptance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, err := w.f.Acceptance("fd-a")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	tell := func(e subjects.FleetEvent) {
		t.Helper()
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.b.Conn().PublishMsg(&nats.Msg{Subject: w.b.Fleet().FleetEvent(e.Kind), Data: body}); err != nil {
			t.Fatal(err)
		}
	}
	tell(subjects.FleetEvent{Kind: subjects.RaiderQueued, FrontDoor: "fd-b", Prompt: "another"})
	tell(subjects.FleetEvent{Kind: subjects.RaiderQueued, FrontDoor: "fd-a", Prompt: "mine"})
	tell(subjects.FleetEvent{Kind: subjects.RaiderRefused, FrontDoor: "fd-a", Error: "backlog full"})
	if e, err := a.Wait(t.Context()); err != nil || e.Prompt != "mine" {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := a.Wait(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("refused: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}
