package frontdoor

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// closeSession answers session/close when everything of the session has ended. State
// closing is written first: no prompt starts after it.
func (c *conn) closeSession(ctx context.Context, r *rpc.Request) error {
	id, err := sessionOf(r.Params)
	if err != nil {
		return err
	}
	meta, err := c.setState(ctx, id, func(m *subjects.SessionMeta) bool {
		if m.State != subjects.SessionOpen {
			return false
		}
		m.State = subjects.SessionClosing
		return true
	})
	if err != nil {
		return err
	}
	if meta.State == subjects.SessionClosing {
		if err := c.endSession(ctx, meta); err != nil {
			return err
		}
	}
	if err := c.find(meta.Session).letGo(ctx); err != nil {
		return err
	}
	answer(c.log, r, struct{}{})
	return nil
}

// endSession ends all that a session in state closing has, and writes that it is closed.
// Several front doors may do it at once, and one goes on where another has died.
func (c *conn) endSession(ctx context.Context, meta subjects.SessionMeta) error {
	a := c.find(meta.Session)
	if a != nil {
		a.cancelOwn()
	}
	if err := c.f.cancelUnfinished(ctx, meta, string(c.f.instance), a); err != nil {
		return err
	}
	if err := a.ended(ctx); err != nil {
		return err
	}
	c.f.endRaider(ctx, meta)
	_, err := c.setState(ctx, string(meta.Session), func(m *subjects.SessionMeta) bool {
		if m.State != subjects.SessionClosing {
			return false
		}
		m.State = subjects.SessionClosed
		return true
	})
	return err
}

// ended blocks until no turn is open here. nil has none.
func (a *attachment) ended(ctx context.Context) error {
	if a == nil {
		return nil
	}
	for {
		a.c.mu.Lock()
		idle := a.c.idle
		a.c.mu.Unlock()
		if a.openTurns() == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// letGo ends the attachment when no turn is open. A prompt that comes later attaches the
// session anew, and finds it closed.
func (a *attachment) letGo(ctx context.Context) error {
	if a == nil {
		return nil
	}
	for {
		if err := a.ended(ctx); err != nil {
			return err
		}
		a.mu.Lock()
		free := len(a.turns) == 0
		a.over = a.over || free
		a.mu.Unlock()
		if free {
			a.forget()
			a.end()
			a.open(nil, false, nil) // one that nobody has opened yet ends like the others
			select {                // nothing of the session is written after the answer
			case <-a.gone:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

const (
	// raiderEndEvery and raiderEndFor: how often and how long is looked whether a session's
	// raider has ended. It has two graces of 2 s, and is killed then.
	raiderEndEvery = 20 * time.Millisecond
	raiderEndFor   = 10 * time.Second
)

// endRaider has the lane's owner end the session's raider process, and returns when there is
// none. Without an owner there is none; a lane that misses it ends it when it has been idle.
func (f *FrontDoor) endRaider(ctx context.Context, meta subjects.SessionMeta) {
	ctx, cancel := context.WithTimeout(ctx, raiderEndFor)
	defer cancel()
	req := subjects.ControlRequest{Op: subjects.ControlClose, Principal: meta.Principal, Session: meta.Session}
	for {
		reply, err := f.control(ctx, meta.Lane, req)
		switch {
		case errors.Is(err, nats.ErrNoResponders), err == nil && reply.Decided:
			return
		case err != nil || reply.Error != "":
			f.log.Debug("session's raider not ended by us", "lane", string(meta.Lane), "error", err)
			return
		}
		if !sleep(ctx, raiderEndEvery) {
			return
		}
	}
}
