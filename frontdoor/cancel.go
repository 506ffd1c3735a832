package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// cancelSession takes a session/cancel: every prompt that the session has now is to end.
func (c *conn) cancelSession(params json.RawMessage) {
	id, err := sessionOf(params)
	if err != nil {
		return
	}
	session, err := subjects.ParseSession(id)
	if err != nil {
		return
	}
	if a := c.find(session); a != nil {
		a.cancelAll()
		return
	}
	// Not attached here: prompts of other connections.
	c.serveOne(func() {
		meta, _, err := c.meta(c.ctx, id)
		if err != nil {
			return
		}
		if err := c.f.cancelUnfinished(c.ctx, meta, string(c.f.instance), nil); err != nil && c.ctx.Err() == nil {
			c.log.Warn("session not cancelled", "session", id, "error", err)
		}
	})
}

// cancelAll cancels every turn that is open here, and what the session has elsewhere.
func (a *attachment) cancelAll() {
	a.mu.Lock()
	a.wanted = true
	a.mu.Unlock()
	a.cancelOwn()
}

// cancelOwn cancels every turn that is open here.
func (a *attachment) cancelOwn() {
	a.mu.Lock()
	for _, t := range a.turns {
		t.cancelled = true
	}
	a.mu.Unlock()
	a.startCanceller()
}

// cancelTurn cancels one turn, for $/cancel_request.
func (a *attachment) cancelTurn(t *turn) {
	a.mu.Lock()
	t.cancelled, t.peerCancelled = true, true
	a.mu.Unlock()
	a.startCanceller()
}

// startCanceller carries out what cancels are wanted. Of many in a row the backlog is
// looked through once or twice.
func (a *attachment) startCanceller() {
	select {
	case <-a.opened:
	default:
		return // open comes here again; nothing has been published
	}
	a.mu.Lock()
	meta, turns := a.meta, a.cancelTurnsLocked()
	for _, t := range turns {
		a.cancelled[t.prompt] = true
	}
	look := a.wanted && !a.cancelling
	a.cancelling = a.cancelling || look
	a.mu.Unlock()
	for _, t := range turns {
		a.c.spawn(func() { a.carryOut(meta, t) })
	}
	if look {
		a.c.spawn(func() { a.cancelOthers(meta) })
	}
}

// cancelOthers cancels what the session has from other clients.
func (a *attachment) cancelOthers(meta subjects.SessionMeta) {
	for {
		a.mu.Lock()
		if !a.wanted || a.ctx.Err() != nil {
			a.cancelling = false
			a.mu.Unlock()
			return
		}
		a.wanted = false
		a.mu.Unlock()
		waiting, err := a.f.unfinished(a.ctx, meta, a)
		if err != nil && a.ctx.Err() == nil {
			a.log.Warn("session's other prompts not cancelled", "error", err)
		}
		for _, w := range waiting {
			a.cancelOther(meta, w)
		}
	}
}

// cancelOther cancels another client's prompt, which may take long, once at a time.
func (a *attachment) cancelOther(meta subjects.SessionMeta, w waitingPrompt) {
	p := w.header.Prompt
	a.mu.Lock()
	busy := a.cancelled[p]
	a.cancelled[p] = true
	a.mu.Unlock()
	if busy {
		return
	}
	a.c.spawn(func() {
		if err := a.f.cancelWaiting(a.ctx, meta, w, string(a.id)); err != nil && a.ctx.Err() == nil {
			a.log.Warn("prompt not cancelled", "prompt", string(p), "error", err)
		}
		a.mu.Lock()
		delete(a.cancelled, p)
		a.mu.Unlock()
	})
}

// cancelTurnsLocked are the turns whose cancel has to be carried out in the fleet.
func (a *attachment) cancelTurnsLocked() []*turn {
	var out []*turn
	for _, t := range a.turns {
		if t.cancelled && t.published && !t.closing && !a.cancelled[t.prompt] {
			out = append(out, t)
		}
	}
	return out
}

// carryOut cancels a turn in the fleet, until it has been answered.
func (a *attachment) carryOut(meta subjects.SessionMeta, t *turn) {
	defer func() {
		a.mu.Lock()
		delete(a.cancelled, t.prompt)
		a.mu.Unlock()
	}()
	// Again and again: a cancel that was taken is not forgotten because NATS was away.
	for t.ctx.Err() == nil {
		err := a.f.cancelPrompt(a.ctx, t.ctx, meta, t.prompt, string(a.id), func() (uint64, string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			// Not acknowledged yet: the submitter deletes it when it is.
			t.withdrawn = t.seq == 0
			return t.seq, t.payload
		})
		if err == nil {
			break
		}
		if t.ctx.Err() != nil {
			return // it has ended, which ended the request too
		}
		a.log.Warn("prompt not cancelled yet", "prompt", string(t.prompt), "error", err)
		if !sleep(t.ctx, controlEvery) {
			return
		}
	}
	// The outcome's event may have been missed: the record has it.
	for t.ctx.Err() == nil {
		signal(a.pokes)
		if !sleep(t.ctx, controlEvery) {
			return
		}
	}
}

// cancelPrompt cancels a prompt as the fleet's protocol wants it: the mark first, which
// its owner finds whatever happens to us; then the record, which keeps a waiting one from
// ever running; if that is too late, the owner is asked until open ends or the prompt has
// ended. place tells its
// sequence in BACKLOG, 0 if that isn't known, and its payload.
func (f *FrontDoor) cancelPrompt(ctx, open context.Context, meta subjects.SessionMeta, p subjects.PromptID, by string, place func() (seq uint64, payload string)) error {
	err := f.retry(ctx, func(ctx context.Context) error {
		mark := subjects.CancelMark{By: by, Time: time.Now()}
		_, err := f.b.SetJSON(ctx, f.fleet.RunsBucket(), subjects.CancelKey(p), mark, subjects.RunTTL)
		return err
	})
	if err != nil {
		return err
	}
	rec, run, err := f.createCancelled(ctx, meta, p)
	if err != nil {
		return err
	}
	if !run {
		seq, payload := place()
		return f.settleCancelled(ctx, meta, p, seq, payload, rec)
	}
	req := subjects.ControlRequest{Op: subjects.ControlCancel, Principal: meta.Principal, Session: meta.Session, Prompt: p, By: by}
	for !rec.State.Ended() {
		if reply, err := f.control(open, meta.Lane, req); err != nil || reply.Error != "" {
			f.log.Debug("owner not reached", "lane", string(meta.Lane), "error", err)
		}
		if !sleep(open, controlEvery) {
			return open.Err()
		}
		bound, done := f.b.Bound(ctx, 0)
		var now subjects.RunRecord
		if _, err := f.b.GetJSON(bound, f.fleet.RunsBucket(), subjects.RunKey(p), &now); err == nil {
			rec = now
		}
		done()
	}
	return nil
}

// settleCancelled does what follows from the record of a prompt that never ran. A worker
// that finds the message does the same; each step is safe to repeat.
func (f *FrontDoor) settleCancelled(ctx context.Context, meta subjects.SessionMeta, p subjects.PromptID, seq uint64, payload string, rec subjects.RunRecord) error {
	out := rec.Outcome
	if out == nil {
		out = &subjects.Outcome{Prompt: p, State: subjects.RunCancelled}
	}
	h := subjects.EventHeader{Kind: subjects.EventOutcome, Prompt: p}
	err := f.retry(ctx, func(ctx context.Context) error {
		m := &nats.Msg{Subject: f.fleet.Event(meta.Session), Header: h.Header(), Data: object(out)}
		_, err := f.b.Publish(ctx, m, jetstream.WithMsgID(string(p)+".outcome"))
		return err
	})
	if err != nil {
		return err
	}
	f.tellCancelled(meta, p)
	if seq == 0 {
		return nil
	}
	return f.forget(ctx, seq, payload)
}

// forget deletes a prompt that does not run from BACKLOG, and its payload.
func (f *FrontDoor) forget(ctx context.Context, seq uint64, payload string) error {
	err := f.retry(ctx, func(ctx context.Context) error {
		return f.b.DeleteMessage(ctx, f.fleet.BacklogStream(), seq)
	})
	if err != nil || payload == "" {
		return err
	}
	return f.retry(ctx, func(ctx context.Context) error { return f.b.DeletePayload(ctx, payload) })
}

// waitingPrompt is a message in BACKLOG.
type waitingPrompt struct {
	seq    uint64
	header subjects.PromptHeader
}

// backlog reads a lane's waiting prompts, the running one included, up to a sequence and
// a number of them; 0 means no limit. opens are of the other messages that were read those
// that only open the raider: nobody waits for them.
func (f *FrontDoor) backlog(ctx context.Context, meta subjects.SessionMeta, last uint64, limit int) (out, opens []waitingPrompt, err error) {
	subject := f.fleet.BacklogLane(meta.Raider, meta.Lane)
	for from := uint64(1); limit == 0 || len(out) < limit; {
		var m bus.Message
		err := f.retry(ctx, func(ctx context.Context) error {
			var err error
			m, err = f.b.Next(ctx, f.fleet.BacklogStream(), subject, from)
			return err
		})
		if errors.Is(err, bus.ErrNotFound) || err == nil && last > 0 && m.Seq > last {
			return out, opens, nil
		}
		if err != nil {
			return nil, nil, err
		}
		from = m.Seq + 1
		switch h, err := subjects.ParsePromptHeader(m.Header); {
		case err != nil:
		case h.Kind == subjects.KindOpen:
			opens = append(opens, waitingPrompt{m.Seq, h})
		default:
			out = append(out, waitingPrompt{m.Seq, h})
		}
	}
	return out, opens, nil
}

// unfinished lists the session's prompts that are in BACKLOG now, whoever sent them. own,
// if not nil, is the attachment whose own turns are left out: it knows by itself which of
// them a cancel means.
func (f *FrontDoor) unfinished(ctx context.Context, meta subjects.SessionMeta, own *attachment) ([]waitingPrompt, error) {
	var last uint64
	err := f.retry(ctx, func(ctx context.Context) error {
		var err error
		last, err = f.b.LastSeq(ctx, f.fleet.BacklogStream())
		return err
	})
	if err != nil || last == 0 {
		return nil, err
	}
	all, _, err := f.backlog(ctx, meta, last, 0)
	return slices.DeleteFunc(all, func(w waitingPrompt) bool {
		return w.header.Session != meta.Session || own != nil && w.header.Origin.Attachment == own.id
	}), err
}

// cancelUnfinished cancels the session's prompts as unfinished lists them and returns
// when they have ended.
func (f *FrontDoor) cancelUnfinished(ctx context.Context, meta subjects.SessionMeta, by string, own *attachment) error {
	waiting, err := f.unfinished(ctx, meta, own)
	if err != nil {
		return err
	}
	problems := make([]error, len(waiting))
	var cancels sync.WaitGroup
	busy := make(chan struct{}, 16)
	for i, w := range waiting {
		busy <- struct{}{}
		cancels.Go(func() {
			defer func() { <-busy }()
			problems[i] = f.cancelWaiting(ctx, meta, w, by)
		})
	}
	cancels.Wait()
	return errors.Join(problems...)
}

func (f *FrontDoor) cancelWaiting(ctx context.Context, meta subjects.SessionMeta, w waitingPrompt, by string) error {
	return f.cancelPrompt(ctx, ctx, meta, w.header.Prompt, by, func() (uint64, string) { return w.seq, w.header.Payload })
}

// unended is what a cancel was taken for and has not been carried out when the connection
// ends.
type unended struct {
	meta  subjects.SessionMeta
	turns []*turn
}

// cancelled collects what cancels were taken for, of the client's own: what others have sent
// since is not meant, and can't be told any more from what they had sent before.
func (c *conn) cancelled() []unended {
	var out []unended
	c.each(func(a *attachment) {
		a.mu.Lock()
		defer a.mu.Unlock()
		u := unended{meta: a.meta}
		for _, t := range a.turns {
			if t.cancelled && t.published && t.ctx.Err() == nil { // else it is not in BACKLOG, and never will be
				u.turns = append(u.turns, t)
			}
		}
		if len(u.turns) > 0 {
			out = append(out, u)
		}
	})
	return out
}

// finishCancels sees to it that cancels which were taken are not lost with a client that
// said so and left: the mark is written, and the owner is told once. It blocks for
// leaveGrace at most, also when the front door ends.
func (c *conn) finishCancels(ctx context.Context, all []unended) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveGrace)
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	for _, u := range all {
		for _, t := range u.turns {
			work.Go(func() {
				err := c.f.cancelPrompt(ctx, ctx, u.meta, t.prompt, string(c.f.instance), func() (uint64, string) { return t.seq, t.payload })
				if err != nil && ctx.Err() == nil {
					c.log.Warn("prompt not cancelled", "prompt", string(t.prompt), "error", err)
				}
			})
		}
	}
}

// leaveGrace is how long the end of a connection waits for cancels that it has taken.
const leaveGrace = 2 * time.Second

// drop forgets the waiting prompts of a client that has gone.
func (c *conn) drop(ctx context.Context, turns []*turn) {
	ctx, cancel := context.WithTimeout(ctx, c.f.b.AckWait())
	defer cancel()
	for _, t := range turns {
		rec, run, err := c.f.createCancelled(ctx, t.meta, t.prompt)
		if err == nil && !run {
			err = c.f.settleCancelled(ctx, t.meta, t.prompt, t.seq, t.payload, rec)
		}
		if err != nil {
			c.log.Warn("waiting prompt not dropped", "prompt", string(t.prompt), "error", err)
		}
	}
}

// bound are the sessions that the connection holds.
func (c *conn) bound() []subjects.SessionMeta {
	var out []subjects.SessionMeta
	c.each(func(a *attachment) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.meta.Session != "" {
			out = append(out, a.meta)
		}
	})
	return out
}

// unbind forgets the agent's sessions of a client that has gone, unless another is attached
// to them or nobody can tell: what is asked next begins a new one. A run that goes on is not
// touched.
func (c *conn) unbind(ctx context.Context, sessions []subjects.SessionMeta) {
	ctx, cancel := context.WithTimeout(ctx, c.f.b.AckWait())
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	busy := make(chan struct{}, 16)
	for _, m := range sessions {
		busy <- struct{}{}
		work.Go(func() {
			defer func() { <-busy }()
			if err := c.f.unbind(ctx, m); err != nil && ctx.Err() == nil {
				c.log.Warn("the agent's session is not forgotten", "session", string(m.Session), "error", err)
			}
		})
	}
}

// othersFor is how long another attachment of a session has to say that it is there.
const othersFor = 500 * time.Millisecond

func (f *FrontDoor) unbind(ctx context.Context, m subjects.SessionMeta) error {
	bound, done := context.WithTimeout(ctx, othersFor)
	_, err := f.b.Conn().RequestWithContext(bound, f.fleet.Attached(m.Session), nil)
	done()
	if !errors.Is(err, nats.ErrNoResponders) {
		return err // nil: somebody is there
	}
	// First the record, which the next owner reads, then the owner that there is.
	bound, done = f.b.Bound(ctx, 0)
	defer done()
	if err := f.b.Delete(bound, f.fleet.SessionsBucket(), subjects.AgentKey(m.Principal, m.Session)); err != nil {
		return err
	}
	req := subjects.ControlRequest{Op: subjects.ControlReset, Principal: m.Principal, Session: m.Session, By: string(f.instance)}
	if _, err := f.control(ctx, m.Lane, req); err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return err
	}
	return nil
}
