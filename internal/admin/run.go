package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

var (
	// ErrNoPrompt says that no prompt with that id waits, runs, or has ended within a day.
	ErrNoPrompt = errors.New("no such prompt; run records are kept for a day after the end")
	// ErrNoSession says that there is no session with that id.
	ErrNoSession = errors.New("no such session")
)

const (
	// look is how often a record is read again while something is waited for. Signals
	// come first; they may be missed.
	look = 500 * time.Millisecond
	// lookBacklog is how often the backlog is: it costs more.
	lookBacklog = 4
)

// Ended is how a prompt ended.
type Ended struct {
	Prompt  subjects.PromptID  `json:"prompt"`
	Session subjects.SessionID `json:"session"`
	Raider  subjects.Raider    `json:"raider,omitempty"`
	State   subjects.RunState  `json:"outcome"`
	// StopReason is the raider's, on completed.
	StopReason string             `json:"stop_reason,omitempty"`
	Error      *subjects.RunError `json:"error,omitempty"`
	Worker     subjects.Instance  `json:"worker,omitempty"`
	Started    time.Time          `json:"started,omitzero"`
	Ended      time.Time          `json:"ended,omitzero"`
}

// Wait returns how a prompt ended, when it has. It blocks until then or until ctx ends.
// ErrNoPrompt.
func (f *Fleet) Wait(ctx context.Context, id string) (Ended, error) {
	p, err := subjects.ParsePrompt(id)
	if err != nil {
		return Ended{}, fmt.Errorf("%s: %w", id, ErrNoPrompt)
	}
	wake := make(chan struct{}, 1)
	var sub *nats.Subscription
	defer func() {
		if sub != nil {
			_ = sub.Unsubscribe() // the connection's end does it as well
		}
	}()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for i := 0; ; i++ {
		r, ok, err := f.record(ctx, p)
		switch {
		case err != nil && !bus.Unclear(err):
			return Ended{}, err
		case ok && r.State.Ended():
			return f.ended(ctx, p, r), nil
		case err == nil && sub == nil:
			session := r.Session
			if !ok {
				waiting, err := f.waiting(ctx, func(s stored) bool { return s.header.Prompt == p })
				if err != nil {
					return Ended{}, err
				}
				if len(waiting) == 0 {
					// It may have ended between the two looks.
					if r, ok, err = f.record(ctx, p); err == nil && ok && r.State.Ended() {
						return f.ended(ctx, p, r), nil
					}
					return Ended{}, errors.Join(fmt.Errorf("%s: %w", id, ErrNoPrompt), err)
				}
				session = waiting[0].header.Session
			}
			if sub, err = f.wakeOn(f.b.Fleet().Live(session), wake); err != nil {
				return Ended{}, err
			}
		}
		select {
		case <-tick.C:
		case <-wake:
		case <-ctx.Done():
			return Ended{}, fmt.Errorf("%s has not ended yet: %w", id, ctx.Err())
		}
	}
}

// ended is the record of an ended prompt, with what was too large for it.
func (f *Fleet) ended(ctx context.Context, p subjects.PromptID, r subjects.RunRecord) Ended {
	e := Ended{
		Prompt: p, Session: r.Session, Raider: r.Raider, State: r.State, Worker: r.Owner.Instance,
		Started: r.Started, Ended: r.Ended,
	}
	if r.Outcome == nil {
		return e
	}
	out := *r.Outcome
	if out.Payload != "" {
		whole := out
		if body, err := f.b.GetPayload(ctx, out.Payload); err == nil && json.Unmarshal(body, &whole) == nil {
			out = whole // else the cut text has to do
		}
	}
	e.StopReason, e.Error = out.StopReason, out.Error
	return e
}

// wakeOn signals wake for each message on subject.
func (f *Fleet) wakeOn(subject string, wake chan struct{}) (*nats.Subscription, error) {
	sub, err := f.b.Conn().Subscribe(subject, func(*nats.Msg) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

// waiting are the prompts in the backlog that want accepts.
func (f *Fleet) waiting(ctx context.Context, want func(stored) bool) ([]stored, error) {
	all, err := f.backlog(ctx)
	if err != nil {
		return nil, err
	}
	var out []stored
	for _, s := range all {
		if want(s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// Session reads a session's record, whosever it is. Besides its id it has the name that
// events call its binding: acp:SESSION, or slot:SLOT for the slot's own or else the only one
// on it. ErrNoSession.
func (f *Fleet) Session(ctx context.Context, id string) (subjects.SessionMeta, error) {
	if slot, ok := strings.CutPrefix(id, "slot:"); ok {
		return f.bySlot(ctx, slot)
	}
	s, err := subjects.ParseSession(strings.TrimPrefix(id, "acp:"))
	if err != nil {
		return subjects.SessionMeta{}, fmt.Errorf("%s: %w", id, ErrNoSession)
	}
	found, err := f.b.List(ctx, f.b.Fleet().SessionsBucket(), subjects.MetaOfFilter(s))
	if err != nil {
		return subjects.SessionMeta{}, err
	}
	if len(found) == 0 {
		return subjects.SessionMeta{}, fmt.Errorf("%s: %w", id, ErrNoSession)
	}
	var m subjects.SessionMeta
	if err := json.Unmarshal(found[0].Value, &m); err != nil {
		return m, fmt.Errorf("session %s: %w", id, err)
	}
	return m, nil
}
