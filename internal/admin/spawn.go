package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// Acceptance waits for what becomes of a prompt that a front door of this process sends.
type Acceptance struct {
	door   subjects.Instance
	events chan *nats.Msg
	subs   []*nats.Subscription
}

// Acceptance listens from now on: call it before the prompt is sent, on the connection that
// the front door uses. Close ends it.
func (f *Fleet) Acceptance(door subjects.Instance) (*Acceptance, error) {
	a := &Acceptance{door: door, events: make(chan *nats.Msg, newsBuffer)}
	for _, kind := range []subjects.FleetEventKind{subjects.RaiderQueued, subjects.RaiderRefused} {
		sub, err := f.b.Conn().ChanSubscribe(f.b.Fleet().FleetEvent(kind), a.events)
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("listen for the prompt: %w", err)
		}
		a.subs = append(a.subs, sub)
	}
	return a, nil
}

// ErrRefused says that the fleet did not take a prompt.
var ErrRefused = errors.New("the prompt was refused")

// Wait returns the event of the first prompt that the front door sent, when it has been
// accepted. ErrRefused.
func (a *Acceptance) Wait(ctx context.Context) (subjects.FleetEvent, error) {
	for {
		select {
		case m := <-a.events:
			var e subjects.FleetEvent
			if json.Unmarshal(m.Data, &e) != nil || e.FrontDoor != a.door {
				continue
			}
			if e.Kind == subjects.RaiderRefused {
				return e, fmt.Errorf("%w: %s", ErrRefused, e.Error)
			}
			return e, nil
		case <-ctx.Done():
			return subjects.FleetEvent{}, ctx.Err()
		}
	}
}

// Close ends the listening.
func (a *Acceptance) Close() {
	for _, sub := range a.subs {
		_ = sub.Unsubscribe() // the connection's end does it as well
	}
}

// Served lists the raiders that front doors offer and workers serve, the fleet's default
// first as far as a front door tells it.
func (f *Fleet) Served(ctx context.Context) ([]subjects.Raider, error) {
	records, err := f.b.List(ctx, f.b.Fleet().NodesBucket(), "")
	if err != nil {
		return nil, fmt.Errorf("list the raiders: %w", err)
	}
	var doors, workers []subjects.Node
	for _, r := range records {
		var n subjects.Node
		if _, err := subjects.ParseNodeKey(r.Key); err != nil || json.Unmarshal(r.Value, &n) != nil || n.State == subjects.NodeGoodbye {
			continue // a lease of the workers, or gone
		}
		if n.Role == subjects.RoleFrontDoor {
			doors = append(doors, n)
		} else {
			workers = append(workers, n)
		}
	}
	// The oldest first: front doors of commands come and go, and offer what others do.
	slices.SortFunc(doors, func(a, b subjects.Node) int { return a.Started.Compare(b.Started) })
	slices.SortFunc(workers, func(a, b subjects.Node) int { return a.Started.Compare(b.Started) })
	var out []subjects.Raider
	for _, n := range append(doors, workers...) {
		for _, name := range n.Raiders {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out, nil
}
