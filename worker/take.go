package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// offerTimeout is how long the owner of a lane has to answer an offer.
const offerTimeout = time.Second

// takeTries bounds how often a take starts again when another was faster; after them
// the baton comes again by itself.
const takeTries = 5

// errLetGo: the lane is served by another, or the baton is left to come again.
var errLetGo = errors.New("let go")

// serveBaton takes the baton's lane and serves it until it is given up. It returns
// whether the place was handed back already.
func (w *Worker) serveBaton(ctx context.Context, bt baton) (placeGiven bool) {
	select {
	case <-w.drain:
		w.giveBack(ctx, bt)
		return false
	default:
	}
	// Warm lanes count too: the longest idle one makes room.
	for w.tableSize() >= w.c.MaxWarm {
		if !w.evictIdle(ctx) {
			break
		}
	}
	l, err := w.take(ctx, bt)
	switch {
	case errors.Is(err, errLetGo):
		return false
	case err != nil:
		w.log.Warn("lane not taken, its baton comes again", "lane", string(bt.lane), "error", err)
		return false
	}
	l.serve() //nolint:contextcheck // the lane has a life of its own
	return true
}

func (w *Worker) tableSize() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lanes)
}

// take makes this worker the lane's owner: the steps are in docs/architecture.md.
func (w *Worker) take(ctx context.Context, bt baton) (*lane, error) {
	for range takeTries {
		l, again, err := w.tryTake(ctx, bt)
		if !again {
			return l, err
		}
		// Another was faster, or an answer is missing: look at what is there now.
		w.extend(bt.reply)
		if err := w.b.WaitUp(ctx); err != nil {
			return nil, err
		}
	}
	return nil, errLetGo
}

func (w *Worker) tryTake(ctx context.Context, bt baton) (l *lane, again bool, err error) {
	home := w.lookHome(ctx, bt) // beside the read that says whether it is needed
	own, seq, err := w.readOwn(ctx, bt)
	if err != nil {
		return nil, bus.Unclear(err), err
	}
	switch {
	case own.Type == "" || own.Type == subjects.OwnReleased:
		return w.settleIn(ctx, bt, seq, home)
	case own.Owner.Instance == w.instance:
		if mine := w.owned(bt.lane); mine != nil {
			if mine.adopt(bt) {
				return nil, false, errLetGo // the baton again: it goes on with this one
			}
			select { // in a release or being killed: first the tree must be gone
			case <-mine.done:
			case <-ctx.Done():
				return nil, false, ctx.Err()
			}
			return nil, true, errLetGo
		}
		// An expired lease of our own: nothing of it runs, or it would be in the table.
		return w.claim(ctx, bt, seq)
	case own.Type == subjects.OwnBid:
		// A bid that is there counts as one's own: two who bid over each other's bids
		// would put each other off for ever.
		return w.outwait(ctx, bt, own, seq)
	}
	if w.saidGoodbye(ctx, own.Owner.Instance) {
		return w.settleIn(ctx, bt, seq, home)
	}
	switch w.offer(ctx, bt, own.Owner) {
	case subjects.OfferMine:
		return nil, false, errLetGo
	case subjects.OfferGone:
		return w.settleIn(ctx, bt, seq, home)
	case subjects.OfferFull: // no answer to an offer
	}
	// No answer. Whoever has it may be cut off and fine: claiming now, or after a mere
	// wait, gave hundreds of milliseconds of two live runs. A bid makes its next
	// renewal fail, so that it either answers the bid or ends by itself.
	bid := subjects.Own{Type: subjects.OwnBid, Owner: own.Owner, Bidder: w.instance}
	bidSeq, err := w.publishOwn(ctx, bt, bid, seq, 0)
	if err != nil {
		return nil, true, err // lost or unclear: what is there now decides
	}
	return w.outwait(ctx, bt, bid, bidSeq)
}

// settleIn finds an owner for a lane that has none: the worker that is its session's home
// and has room, else this one.
func (w *Worker) settleIn(ctx context.Context, bt baton, expect uint64, home <-chan string) (*lane, bool, error) {
	if w.sendHome(ctx, bt, <-home) {
		return nil, false, errLetGo
	}
	return w.claim(ctx, bt, expect)
}

// outwait keeps the baton and repeats the offer for one ack_wait, in which an owner
// that lives answers the offer or the bid, and the lease of any other runs out.
func (w *Worker) outwait(ctx context.Context, bt baton, bid subjects.Own, bidSeq uint64) (*lane, bool, error) {
	wait := time.NewTimer(w.b.AckWait())
	defer wait.Stop()
	tick := time.NewTicker(w.b.AckWait() / 4)
	defer tick.Stop()
	for {
		select {
		case <-wait.C:
			own, seq, err := w.readOwn(ctx, bt)
			if err != nil {
				return nil, bus.Unclear(err), err
			}
			if seq != bidSeq || own.Type != subjects.OwnBid {
				return nil, false, errLetGo
			}
			l, again, err := w.claim(ctx, bt, bidSeq)
			if l != nil {
				w.log.Info("lane taken over from a worker that does not answer", "lane", string(bt.lane), "raider", string(bt.raider.Name), "from", string(bid.Owner.Instance), "epoch", l.owner().Epoch)
			}
			return l, again, err
		case <-tick.C:
			w.extend(bt.reply)
			if bid.Owner.Instance == w.instance || bid.Owner.Instance == "" {
				continue // a bid over an earlier life of this lane at this worker
			}
			switch w.offer(ctx, bt, bid.Owner) {
			case subjects.OfferMine:
				return nil, false, errLetGo
			case subjects.OfferGone:
				return w.claim(ctx, bt, bidSeq)
			case subjects.OfferFull: // no answer to an offer
			}
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// claim publishes the claim, expecting what was read.
func (w *Worker) claim(ctx context.Context, bt baton, expect uint64) (*lane, bool, error) {
	l := newLane(w, bt)
	// In the table first: from now on an offer is answered 'mine'. The other way round
	// the answer could be 'gone' between the claim and the entry, and a healthy run lost.
	if !w.enter(l) {
		return nil, true, errLetGo
	}
	l.lookEarly(ctx)
	begin := shim.Now()
	link := w.b.Link()
	own := subjects.Own{Type: subjects.OwnClaim, Owner: subjects.Owner{Instance: w.instance}}
	seq, err := w.publishOwn(ctx, bt, own, expect, 0)
	if err != nil {
		// Perhaps it was stored and only the answer is missing.
		have, haveSeq, readErr := w.readOwn(ctx, bt)
		if readErr != nil || have.Type != subjects.OwnClaim || have.Owner.Instance != w.instance || have.Owner.Epoch != haveSeq || haveSeq <= expect {
			w.leave(l)
			l.abandon()
			return nil, true, fmt.Errorf("claim: %w", err)
		}
		seq = haveSeq
	}
	l.claimed(link, seq, begin) //nolint:contextcheck // the link, not the caller, bounds what was confirmed on it
	w.extend(bt.reply)
	return l, false, nil
}

// readOwn reads the lane's last own message. Type is empty when there is none.
func (w *Worker) readOwn(ctx context.Context, bt baton) (subjects.Own, uint64, error) {
	ctx, cancel := w.b.Bound(ctx, 0)
	defer cancel()
	var own subjects.Own
	m, err := w.b.Last(ctx, w.fleet.OwnStream(), w.fleet.Own(bt.raider.Name, bt.lane))
	if errors.Is(err, bus.ErrNotFound) {
		return own, 0, nil
	}
	if err != nil {
		return own, 0, fmt.Errorf("read the lane's owner: %w", err)
	}
	if m.Header.Get("Nats-Marker-Reason") != "" || len(m.Data) == 0 {
		return own, m.Seq, nil
	}
	if json.Unmarshal(m.Data, &own) != nil {
		// Nobody of ours wrote it, and whoever owns the lane loses it now. As good as a bid:
		// one ack_wait later no lease of an owner is left.
		return subjects.Own{Type: subjects.OwnBid}, m.Seq, nil
	}
	if own.Type == subjects.OwnClaim && own.Owner.Epoch == 0 {
		own.Owner.Epoch = m.Seq // the first claim of an owner: its own sequence
	}
	return own, m.Seq, nil
}

func (w *Worker) publishOwn(ctx context.Context, bt baton, own subjects.Own, expect uint64, ttl time.Duration) (uint64, error) {
	body, err := json.Marshal(own)
	if err != nil {
		return 0, err
	}
	ctx, cancel := w.b.Bound(ctx, 0)
	defer cancel()
	m := &nats.Msg{Subject: w.fleet.Own(bt.raider.Name, bt.lane), Data: body}
	seq, err := w.b.PublishExpect(ctx, m, expect, msgTTL(ttl)...)
	if err != nil {
		return 0, fmt.Errorf("publish %s: %w", own.Type, err)
	}
	return seq, nil
}

// offer asks the owner whether it goes on. Empty: no answer.
func (w *Worker) offer(ctx context.Context, bt baton, to subjects.Owner) subjects.OfferAnswer {
	body, err := json.Marshal(subjects.WorkerRequest{
		Op: subjects.WorkerOffer, Raider: bt.raider.Name, Lane: bt.lane, Epoch: to.Epoch,
		BatonReply: bt.reply, BatonSeq: bt.seq,
	})
	if err != nil {
		return ""
	}
	ctx, cancel := w.b.Bound(ctx, min(offerTimeout, w.b.AckWait()/2))
	defer cancel()
	m, err := w.b.Conn().RequestWithContext(ctx, w.fleet.Worker(to.Instance), body)
	if err != nil {
		return ""
	}
	var reply subjects.WorkerReply
	if json.Unmarshal(m.Data, &reply) != nil {
		return ""
	}
	return reply.Offer
}

// extend gives a baton another ack_wait. It proves nothing and is never answered.
func (w *Worker) extend(reply string) {
	// Lost while disconnected: the baton comes again, and is then offered to its owner.
	_ = w.b.Conn().Publish(reply, []byte("+WPI"))
}

// giveBack puts a baton back for another worker: deleted by its sequence (never
// acknowledged: on three replicas the answer comes before the baton is gone and the
// next one is refused), the backlog looked at, published again.
func (w *Worker) giveBack(ctx context.Context, bt baton) {
	bound, cancel := w.b.Bound(ctx, w.b.AckWait())
	defer cancel()
	if err := w.b.DeleteMessage(bound, w.fleet.ReadyStream(), bt.seq); err != nil {
		w.log.Debug("baton not given back, it comes again", "lane", string(bt.lane), "error", err)
		return
	}
	w.publishBatonIfWork(ctx, bt.raider, bt.class, bt.lane)
}

// publishBatonIfWork publishes the lane's baton if its backlog holds something.
func (w *Worker) publishBatonIfWork(ctx context.Context, r *Raider, c subjects.Class, id subjects.LaneID) {
	err := w.retry(ctx, func(ctx context.Context) error {
		_, err := w.b.Next(ctx, w.fleet.BacklogStream(), w.fleet.BacklogLane(r.Name, id), 1)
		if errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = w.b.Publish(ctx, &nats.Msg{Subject: w.fleet.Ready(r.Name, c, id)})
		if errors.Is(err, bus.ErrFull) {
			return nil // another was faster
		}
		return err
	})
	if err != nil {
		// The sweep publishes it.
		w.log.Warn("baton not published", "lane", string(id), "error", err)
	}
}

// retry repeats what is safe to repeat until it succeeds, ctx ends, or an ack_wait has
// passed. Each try is bounded and ends with its link.
func (w *Worker) retry(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.b.AckWait())
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		bound, done := w.b.Bound(ctx, w.b.AckWait()/3)
		err := f(bound)
		done()
		if err == nil || !bus.Unclear(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		if w.b.WaitUp(ctx) != nil {
			return err
		}
	}
}
