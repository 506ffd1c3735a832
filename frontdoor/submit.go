package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// submitFor bounds the tries to get a prompt accepted. It is below DuplicateWindow, so
// that a repeated publish is never stored twice.
const submitFor = min(time.Minute, subjects.DuplicateWindow/2)

// startSubmitter starts the goroutine that publishes the queue, if there is something in
// it and none runs. One prompt of the session is in flight at a time.
func (a *attachment) startSubmitter() {
	select {
	case <-a.opened:
	default:
		return // open starts it
	}
	a.mu.Lock()
	if a.submitting || len(a.queue) == 0 {
		a.mu.Unlock()
		return
	}
	a.submitting = true
	a.mu.Unlock()
	a.c.spawn(func() {
		for {
			t := a.next()
			if t == nil {
				return
			}
			a.submit(a.ctx, t)
			a.startCanceller() // of what was cancelled while it was published
		}
	})
}

// next takes the next turn that is to be published; nil ends the submitter.
func (a *attachment) next() *turn {
	for {
		a.mu.Lock()
		if len(a.queue) == 0 || a.ctx.Err() != nil {
			a.submitting = false
			a.mu.Unlock()
			return nil
		}
		t, cancelled, raider := a.queue[0], a.queue[0].cancelled, a.meta.Raider
		a.mu.Unlock()
		_, known := a.f.raiders[raider]
		var unfit error
		if known && !cancelled {
			unfit = a.f.takes(t.ctx, raider, t.blocks) // may wait, and a cancel come meanwhile
		}
		a.mu.Lock()
		if len(a.queue) == 0 || a.queue[0] != t {
			a.mu.Unlock()
			continue // the attachment has ended
		}
		a.queue = a.queue[1:]
		cancelled = t.cancelled
		t.published, t.meta = !cancelled && known && unfit == nil, a.meta
		a.mu.Unlock()
		switch {
		case cancelled:
			// Before it was published: it never was in the fleet.
			a.conclude(t, subjects.Outcome{State: subjects.RunCancelled})
		case !known:
			a.refuse(t, fmt.Sprintf("raider %s is not configured any more", raider))
		case unfit != nil:
			a.closeTurn(t, func(r *rpc.Request) { answerError(a.log, r, a.f.fault(unfit)) })
		default:
			return t
		}
	}
}

// submit gets a turn's prompt accepted, or answers why not.
func (a *attachment) submit(ctx context.Context, t *turn) {
	a.mu.Lock()
	meta := a.meta
	a.mu.Unlock()
	var closed bool
	var looking sync.WaitGroup
	looking.Go(func() { closed = a.closedElsewhere(ctx) })
	seq, sure, err := a.publish(ctx, meta, t)
	looking.Wait()
	switch {
	case err == nil && closed:
		a.turnAway(ctx, meta, t, seq)
		return
	case err == nil:
		a.accept(ctx, meta, t, seq)
		return
	case ctx.Err() != nil:
		return // nobody is left who could be told
	}
	if !sure {
		// It may be stored, now or later: what is answered must be true then, too.
		run, recordErr := a.withdraw(ctx, meta, t.prompt, 2*a.f.b.AckWait())
		switch {
		case errors.Is(recordErr, errSilent):
			a.log.Error("whether a prompt was accepted is not known", "prompt", string(t.prompt), "lane", string(meta.Lane), "error", err)
			a.unknown(meta, t)
			return
		case recordErr != nil:
			return // the connection has ended
		case run:
			a.accept(ctx, meta, t, 0)
			return
		}
	}
	a.mu.Lock()
	cancelled := t.cancelled
	a.mu.Unlock()
	switch {
	case cancelled:
		a.conclude(t, subjects.Outcome{State: subjects.RunCancelled})
	case errors.Is(err, errPayloads) && errors.Is(err, bus.ErrFull):
		a.refuse(t, fmt.Sprintf("the prompt has %d bytes, and PAYLOADS, where large ones are kept, is full; nothing was accepted", len(t.req.Params)))
	case errors.Is(err, bus.ErrNoSpace):
		a.log.Error("prompt not accepted", "prompt", string(t.prompt), "lane", string(meta.Lane), "error", err)
		a.refuse(t, fmt.Sprintf("the fleet's NATS has no space left for the prompt's %d bytes; it will not run", len(t.req.Params)))
	case errors.Is(err, bus.ErrFull):
		text := "backlog full"
		if a.f.c.MaxBacklog > 0 {
			text = fmt.Sprintf("backlog full: %d prompts wait for this session", a.f.c.MaxBacklog)
			if meta.Slot != "" {
				text = fmt.Sprintf("backlog full: %d of your prompts wait for %s", a.f.c.MaxBacklog, meta.Slot)
			}
		}
		a.refuse(t, text)
	default:
		a.log.Error("prompt not accepted", "prompt", string(t.prompt), "lane", string(meta.Lane), "error", err)
		a.refuse(t, "the fleet did not accept the prompt in time; it will not run")
	}
}

// closedElsewhere says whether another front door has closed the session, or closes it. It
// is read beside the publish of each prompt, which costs no time then. A record that can't
// be read says nothing: the worker looks at it as well.
func (a *attachment) closedElsewhere(ctx context.Context) bool {
	ctx, cancel := a.f.b.Bound(ctx, a.f.b.AckWait()/3)
	defer cancel()
	var m subjects.SessionMeta
	_, err := a.f.b.GetJSON(ctx, a.f.fleet.SessionsBucket(), subjects.MetaKey(a.c.principal, a.session), &m)
	if errors.Is(err, bus.ErrNotFound) {
		return true // deleted
	}
	return err == nil && m.State != subjects.SessionOpen
}

// turnAway answers a prompt that was stored for a session that is closed, and lets the
// session go: what comes next attaches it anew, and finds it closed at once.
func (a *attachment) turnAway(ctx context.Context, meta subjects.SessionMeta, t *turn, seq uint64) {
	run, err := a.withdraw(ctx, meta, t.prompt, 0)
	if err != nil {
		return // the connection has ended
	}
	a.mu.Lock()
	t.shut = true
	payload := t.payload
	a.mu.Unlock()
	if run {
		a.accept(ctx, meta, t, seq) // its worker finds the session closed, too
		return
	}
	if err := a.f.forget(ctx, seq, payload); err != nil && ctx.Err() == nil {
		// It stays until a worker finds it, and its record.
		a.log.Warn("prompt of a closed session not deleted", "prompt", string(t.prompt), "error", err)
	}
	a.closeTurn(t, func(r *rpc.Request) { answerError(a.log, r, sessionClosed(a.session)) })
	a.c.spawn(func() {
		if err := a.letGo(a.ctx); err != nil {
			a.log.Debug("closed session not let go", "error", err)
		}
	})
}

func (a *attachment) refuse(t *turn, text string) {
	a.mu.Lock()
	meta := a.meta
	a.mu.Unlock()
	a.f.tell(subjects.FleetEvent{
		Kind: subjects.RaiderRefused, Raider: meta.Raider, Lane: meta.Lane, Session: a.session,
		Principal: a.c.principal, Prompt: t.prompt, FrontDoor: a.f.instance, Outcome: subjects.RunRefused, Error: text,
	})
	a.conclude(t, subjects.Outcome{State: subjects.RunRefused, Error: &subjects.RunError{Message: text}})
}

// publish stores the prompt in its lane's backlog, repeating it under the same id until
// it is acknowledged. sure says that nothing was or will be stored.
func (a *attachment) publish(ctx context.Context, meta subjects.SessionMeta, t *turn) (seq uint64, sure bool, err error) {
	b := a.f.b
	ctx, cancel := context.WithTimeout(ctx, a.f.submitFor)
	defer cancel()
	h := subjects.PromptHeader{
		Prompt: t.prompt, Session: a.session, Principal: a.c.principal, Kind: subjects.KindPrompt, Priority: "normal",
		Origin: subjects.Origin{FrontDoor: a.f.instance, Attachment: a.id},
		Client: string(a.c.can.Load().raw),
	}
	body := []byte(t.req.Params)
	large := len(body) > b.MaxInline()
	sure = true
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if err := b.WaitUp(ctx); err != nil {
			return 0, sure, fmt.Errorf("%w: %w", errNoLink, err)
		}
		if large {
			// The object first: a prompt that names it may run at once.
			if err = b.PutPayload(ctx, string(t.prompt), body); err == nil {
				h.Payload, body, large = string(t.prompt), nil, false
				a.mu.Lock()
				t.payload = h.Payload
				a.mu.Unlock()
			} else if !bus.Unclear(err) || errors.Is(err, bus.ErrNoSpace) {
				return 0, true, fmt.Errorf("%w: %w", errPayloads, err)
			}
		}
		if !large {
			bound, done := b.Bound(ctx, b.AckWait()/3)
			m := &nats.Msg{Subject: a.f.fleet.Backlog(meta.Raider, meta.Lane, meta.Principal), Header: h.Header(), Data: body}
			seq, err = b.Publish(bound, m, jetstream.WithMsgID(string(t.prompt)))
			done()
			if err == nil {
				return seq, true, nil
			}
			a.f.miss(err)
			if !bus.Unclear(err) || errors.Is(err, bus.ErrNoSpace) {
				return 0, sure, err // of this try nothing is stored
			}
			sure = false
		}
		if !sleep(ctx, pause) {
			return 0, sure, err
		}
	}
}

// accept notes that a prompt is stored and publishes its lane's baton.
func (a *attachment) accept(ctx context.Context, meta subjects.SessionMeta, t *turn, seq uint64) {
	a.mu.Lock()
	t.accepted, t.seq = true, seq
	withdrawn, payload := t.withdrawn && seq != 0, t.payload
	a.mu.Unlock()
	t.req.Params = nil // may be large, and the turn long
	if meta.Title == "" && t.title != "" {
		a.mu.Lock()
		a.meta.Title = t.title // once is enough; whatever the record says, it has one then
		a.mu.Unlock()
		a.c.spawn(func() { a.entitle(t.title) })
	}
	if withdrawn && a.f.forget(ctx, seq, payload) == nil {
		return
	}
	err := a.f.baton(ctx, meta)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("baton not published, the sweep will", "lane", string(meta.Lane), "error", err)
	}
	a.f.tell(subjects.FleetEvent{
		Kind: subjects.RaiderQueued, Raider: meta.Raider, Lane: meta.Lane, Session: a.session,
		Principal: a.c.principal, Prompt: t.prompt, FrontDoor: a.f.instance,
	})
	signal(a.waits)
}

// baton says that the lane has work. One that is there already is as good.
func (f *FrontDoor) baton(ctx context.Context, meta subjects.SessionMeta) error {
	err := f.retry(ctx, func(ctx context.Context) error {
		_, err := f.b.Publish(ctx, &nats.Msg{Subject: f.fleet.Ready(meta.Raider, meta.Class, meta.Lane)})
		return err
	})
	if errors.Is(err, bus.ErrFull) {
		return nil
	}
	return err
}

// errSilent: NATS is there, and takes no writes.
var errSilent = errors.New("NATS takes no writes")

// withdraw writes the record that keeps a prompt from ever running. run is true when it
// came too late: a worker has the prompt, so it was accepted. The error is ctx's, or errSilent
// when NATS could be reached and took no writes for as long as within, which is for ever if 0.
func (a *attachment) withdraw(ctx context.Context, meta subjects.SessionMeta, p subjects.PromptID, within time.Duration) (run bool, err error) {
	since := time.Now()
	for {
		link := a.f.b.Link()
		_, run, err := a.f.createCancelled(ctx, meta, p)
		if err == nil {
			return run, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		a.log.Warn("prompt not withdrawn yet", "prompt", string(p), "error", err)
		switch {
		case link.Err() != nil:
			since = time.Now()
		case within > 0 && time.Since(since) >= within:
			return false, errSilent
		}
		if !sleep(ctx, time.Second) {
			return false, ctx.Err()
		}
	}
}

// unknown answers a prompt of which nobody can tell whether it will run, and goes on to keep
// it from that.
func (a *attachment) unknown(meta subjects.SessionMeta, t *turn) {
	a.closeTurn(t, func(r *rpc.Request) {
		answerError(a.log, r, &rpc.Error{
			Code:    codeRun,
			Message: "the fleet's NATS takes no writes: whether the prompt will run is not known; it is withdrawn as soon as that can be stored",
			Data:    object(map[string]any{"raiderfleet": map[string]any{"outcome": "unknown", "prompt": t.prompt}}),
		})
	})
	a.c.spawn(func() {
		if _, err := a.withdraw(a.ctx, meta, t.prompt, 0); err != nil {
			a.log.Warn("a prompt may run after its client was told that nobody knows", "prompt", string(t.prompt), "error", err)
		}
	})
}

// createCancelled creates a prompt's run record as cancelled. Of what was there before
// it returns the record; run says that the prompt is or was run.
func (f *FrontDoor) createCancelled(ctx context.Context, meta subjects.SessionMeta, p subjects.PromptID) (rec subjects.RunRecord, run bool, err error) {
	mine := subjects.RunRecord{
		State: subjects.RunCancelled, Session: meta.Session, Principal: meta.Principal, Raider: meta.Raider, Lane: meta.Lane,
		Ended: time.Now(), Outcome: &subjects.Outcome{Prompt: p, State: subjects.RunCancelled},
	}
	bucket, key := f.fleet.RunsBucket(), subjects.RunKey(p)
	err = f.retry(ctx, func(ctx context.Context) error {
		// No TTL: the prompt may be in BACKLOG for long. The sweep retires the record.
		_, err := f.b.PutJSON(ctx, bucket, key, mine, 0, 0)
		return err
	})
	if err == nil {
		return mine, false, nil
	}
	if !errors.Is(err, bus.ErrConflict) {
		return rec, false, err
	}
	err = f.retry(ctx, func(ctx context.Context) error {
		rec = subjects.RunRecord{}
		_, err := f.b.GetJSON(ctx, bucket, key, &rec)
		return err
	})
	// One without an owner was never run: an earlier try of ours, or another's cancel.
	return rec, rec.Owner.Instance != "", err
}
