package worker

import (
	"context"
	"errors"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// keep renews the lease until the lane ends: every ack_wait/3, at once after the link
// was restored, and when somebody waits in hold. An expired lease never comes back: the
// lane ends and its process tree is killed.
func (l *lane) keep() {
	interval := l.w.b.AckWait() / 3
	next := time.NewTimer(interval)
	defer next.Stop()
	for {
		link := l.w.b.Link()
		expiry := time.NewTimer(l.leaseLeft())
		select {
		case <-next.C:
		case <-l.renew:
		case <-link.Done():
			// Paused. Back on a link, perhaps to another server, the first thing is to
			// be confirmed.
			select {
			case <-l.w.b.Up():
			case <-expiry.C:
				l.lose("expired without a link")
				return
			case <-l.ctx.Done():
				expiry.Stop()
				return
			}
		case <-expiry.C:
			l.lose("expired")
			return
		case <-l.ctx.Done():
			expiry.Stop()
			return
		}
		expiry.Stop()
		ok, pause := l.renewOnce()
		if !ok {
			return
		}
		if pause {
			next.Reset(min(interval/8, 100*time.Millisecond))
		} else {
			next.Reset(interval)
		}
	}
}

func (l *lane) leaseLeft() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Duration(l.lease-shim.Now()))
}

// lose ends the lane at once: SIGKILL to the tree, no grace.
func (l *lane) lose(why string) {
	l.w.log.Warn("lease lost", "lane", string(l.id), "why", why)
	l.end(errLeaseLost)
	l.mu.Lock()
	p := l.proc
	l.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

// renewOnce publishes the claim again, expecting the own last sequence. Only a majority
// can acknowledge that: a leader that was cut off went on answering reads with the old
// claim for many seconds after another had been accepted. ok is false when the lane is
// lost; again asks for another try soon.
func (l *lane) renewOnce() (ok, again bool) {
	// A renewal and the release exclude each other, else the one would take the other
	// for a foreign owner.
	l.renewing.Lock()
	defer l.renewing.Unlock()
	l.mu.Lock()
	bt, epoch, expect := l.bt, l.epoch, l.ownSeq
	releasing := l.releasing
	l.mu.Unlock()
	if releasing {
		return true, true
	}
	// A worker that was frozen wakes with all its timers due at once: the one for the end
	// of the lease must not lose against the one for the next renewal.
	if l.leaseLeft() == 0 {
		l.lose("expired")
		return false, false
	}
	claim := subjects.Own{Type: subjects.OwnClaim, Owner: subjects.Owner{Instance: l.w.instance, Epoch: epoch}}
	link := l.w.b.Link()
	begin := shim.Now()
	seq, err := l.w.publishOwn(l.ctx, bt, claim, expect, 0)
	if err == nil {
		l.renewed(link, seq, begin)
		return true, false
	}
	if l.ctx.Err() != nil {
		return false, false
	}
	// Refused or unclear: read, then publish again over what is there, if it is one's own
	// or a bid. The lease counts only from a publish that was acknowledged.
	own, have, err := l.w.readOwn(l.ctx, bt)
	if err != nil {
		return true, true
	}
	mine := own.Owner.Instance == l.w.instance && own.Owner.Epoch == epoch
	if !mine || (own.Type != subjects.OwnClaim && own.Type != subjects.OwnBid) {
		l.lose("another owner")
		return false, false
	}
	l.mu.Lock()
	l.ownSeq = have
	l.mu.Unlock()
	begin, link = shim.Now(), l.w.b.Link()
	seq, err = l.w.publishOwn(l.ctx, bt, claim, have, 0)
	if err != nil {
		return true, true
	}
	l.renewed(link, seq, begin)
	return true, false
}

// renewed notes a renewal that began at begin and was acknowledged on link.
func (l *lane) renewed(link context.Context, seq uint64, begin shim.Boottime) {
	l.mu.Lock()
	if l.lease <= shim.Now() {
		// It ran out before the answer came: the shim has killed the tree, and an expired
		// lease never comes back.
		l.mu.Unlock()
		l.lose("expired before it was renewed")
		return
	}
	l.ownSeq = seq
	l.lease = l.w.leaseEnd(begin)
	l.link = link
	close(l.confirmed)
	l.confirmed = make(chan struct{})
	reply, p, r, lease := l.bt.reply, l.proc, l.run, l.lease
	l.mu.Unlock()
	if p != nil {
		p.setDeadline(lease)
	}
	// The baton is kept by the same beat. It proves nothing: while the consumer's leader
	// steps down nobody answers, and the lane is held all the same.
	l.w.extend(reply)
	if r != nil {
		l.lookForMark(r) //nolint:contextcheck // the lane's life bounds what it starts
	}
}

// hold returns when the lane is known to be this worker's on the present link: nothing
// is started, finished or published before. It fails when the lane is lost.
func (l *lane) hold(ctx context.Context) error {
	for {
		if l.ctx.Err() != nil {
			return context.Cause(l.ctx) //nolint:contextcheck // the lane's end is the answer
		}
		l.mu.Lock()
		fine := l.link != nil && l.link.Err() == nil && l.lease > shim.Now()
		confirmed := l.confirmed
		l.mu.Unlock()
		if fine {
			return nil
		}
		signal(l.renew)
		select {
		case <-confirmed:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release gives the lane up, the only way there is. Its process tree is gone.
func (l *lane) release() {
	w := l.w
	l.renewing.Lock()
	l.mu.Lock()
	// From now on an offer is answered 'gone'.
	l.releasing = true
	l.mu.Unlock()
	l.renewing.Unlock()
	released := subjects.Own{Type: subjects.OwnReleased, Owner: l.owner()}
	for {
		l.mu.Lock()
		bt, expect, lease := l.bt, l.ownSeq, l.lease
		l.mu.Unlock()
		if lease <= shim.Now() || w.b.WaitUp(l.ctx) != nil {
			return // whoever comes bids, as for any dead owner
		}
		_, err := w.publishOwn(l.ctx, bt, released, expect, subjects.ReleasedTTL)
		if err == nil {
			break
		}
		own, have, readErr := w.readOwn(l.ctx, bt)
		if readErr != nil {
			continue
		}
		mine := own.Owner.Instance == w.instance && own.Owner.Epoch == released.Owner.Epoch
		if own.Type == subjects.OwnReleased && mine {
			break // an earlier try
		}
		if !mine {
			return // a stale owner touches nothing more
		}
		l.mu.Lock()
		l.ownSeq = have
		l.mu.Unlock()
	}
	w.leave(l)
	l.mu.Lock()
	seq := l.bt.seq
	l.mu.Unlock()
	// Deleted by its sequence, never acknowledged: see giveBack.
	err := w.retry(l.ctx, func(ctx context.Context) error {
		return w.b.DeleteMessage(ctx, w.fleet.ReadyStream(), seq)
	})
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		w.log.Warn("baton of a released lane not deleted, it comes again", "lane", string(l.id), "error", err)
		return
	}
	w.publishBatonIfWork(l.ctx, l.raider, l.class, l.id)
}
