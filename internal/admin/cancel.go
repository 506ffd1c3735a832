package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// ErrUnknown says that no prompt that waits or runs has that id or session.
var ErrUnknown = errors.New("no such prompt or session with unfinished prompts")

// cancelBy is who a cancel mark of ours names.
const cancelBy = "cli"

// Cancelled is what became of a prompt.
type Cancelled struct {
	Prompt  subjects.PromptID  `json:"prompt"`
	Session subjects.SessionID `json:"session"`
	// State is how the prompt ended: "cancelled", or how it did just before.
	State subjects.RunState `json:"outcome"`
}

// Cancel ends the prompt with that id, or all unfinished prompts that the session has
// now, and waits until they have ended. ErrUnknown when there is none. A prompt that its
// raider does not give up takes the worker's cancel grace and its escalation.
func (f *Fleet) Cancel(ctx context.Context, id string) ([]Cancelled, error) {
	prompts, err := f.backlog(ctx)
	if err != nil {
		return nil, err
	}
	var mine []stored
	for _, p := range prompts {
		if string(p.header.Prompt) == id || string(p.header.Session) == id {
			mine = append(mine, p)
		}
	}
	if len(mine) == 0 {
		return nil, fmt.Errorf("%s: %w", id, ErrUnknown)
	}
	// All marks before anything else: the end of one must not start the next.
	for _, p := range mine {
		mark := subjects.CancelMark{By: cancelBy, Time: time.Now()}
		if _, err := f.b.SetJSON(ctx, f.b.Fleet().RunsBucket(), subjects.CancelKey(p.header.Prompt), mark, subjects.RunTTL); err != nil {
			return nil, err
		}
	}
	out := make([]Cancelled, 0, len(mine))
	for _, p := range mine {
		state, err := f.end(ctx, p)
		if err != nil {
			return out, fmt.Errorf("cancel %s: %w", p.header.Prompt, err)
		}
		out = append(out, Cancelled{p.header.Prompt, p.header.Session, state})
	}
	return out, nil
}

// end ends one prompt: by the record that keeps it from starting, else by its owner.
func (f *Fleet) end(ctx context.Context, p stored) (subjects.RunState, error) {
	now := time.Now()
	outcome := subjects.Outcome{Prompt: p.header.Prompt, State: subjects.RunCancelled}
	record := subjects.RunRecord{
		State: subjects.RunCancelled, Session: p.header.Session, Principal: p.header.Principal,
		Raider: p.raider, Lane: p.lane, Ended: now, Outcome: &outcome,
	}
	// The record, created, is what keeps a prompt from ever running.
	rev, err := f.b.PutJSON(ctx, f.b.Fleet().RunsBucket(), subjects.RunKey(p.header.Prompt), record, 0, 0)
	for errors.Is(err, bus.ErrInFlight) && pause(ctx) { // a worker starts it at this moment
		rev, err = f.b.PutJSON(ctx, f.b.Fleet().RunsBucket(), subjects.RunKey(p.header.Prompt), record, 0, 0)
	}
	switch {
	case err == nil:
		return subjects.RunCancelled, f.putAway(ctx, p, record, rev)
	case errors.Is(err, bus.ErrConflict):
		// It runs, has ended, or this is an earlier try of our own.
		return f.askOwner(ctx, p)
	default:
		return "", err
	}
}

// pause waits a moment; false when ctx has ended.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// putAway tells the session of a prompt that never ran, and takes it out of its lane.
// What is left undone here, the lane's next owner or the sweep does.
func (f *Fleet) putAway(ctx context.Context, p stored, record subjects.RunRecord, rev uint64) error {
	body, err := json.Marshal(record.Outcome)
	if err != nil {
		return err
	}
	event := &nats.Msg{
		Subject: f.b.Fleet().Event(p.header.Session), Data: body,
		Header: subjects.EventHeader{Kind: subjects.EventOutcome, Prompt: p.header.Prompt}.Header(),
	}
	if _, err := f.b.Publish(ctx, event, jetstream.WithMsgID(string(p.header.Prompt)+".outcome")); err != nil {
		return err
	}
	f.tell(subjects.FleetEvent{
		Kind: subjects.RaiderDone, Raider: p.raider, Lane: p.lane, Session: p.header.Session,
		Principal: p.header.Principal, Prompt: p.header.Prompt, Outcome: subjects.RunCancelled,
	})
	if err := f.b.DeleteMessage(ctx, f.b.Fleet().BacklogStream(), p.seq); err != nil {
		return err
	}
	if _, err := f.b.PutJSON(ctx, f.b.Fleet().RunsBucket(), subjects.RunKey(p.header.Prompt), record, rev, subjects.RunTTL); err != nil && !errors.Is(err, bus.ErrConflict) {
		return err
	}
	return nil
}

// askOwner asks the lane's owner to end the run, again and again, until its record says
// that it has ended.
func (f *Fleet) askOwner(ctx context.Context, p stored) (subjects.RunState, error) {
	body, err := json.Marshal(subjects.ControlRequest{
		Op: subjects.ControlCancel, Principal: p.header.Principal, Session: p.header.Session, Prompt: p.header.Prompt, By: cancelBy,
	})
	if err != nil {
		return "", err
	}
	const (
		look     = 50 * time.Millisecond
		askAgain = time.Second
	)
	tick := time.NewTicker(look)
	defer tick.Stop()
	var asked time.Time
	for {
		r, ok, err := f.record(ctx, p.header.Prompt)
		if err == nil && ok && r.State.Ended() {
			return r.State, nil
		}
		if err != nil && ctx.Err() == nil && !bus.Unclear(err) {
			return "", err
		}
		if time.Since(asked) >= askAgain {
			asked = time.Now()
			bound, cancel := f.b.Bound(ctx, askAgain)
			_, err := f.b.Conn().RequestWithContext(bound, f.b.Fleet().Control(p.lane), body)
			cancel()
			_ = err // no owner at the moment, or one that is busy: asked again
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("it has not ended yet: %w", ctx.Err())
		}
	}
}
