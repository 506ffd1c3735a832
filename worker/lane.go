package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// Why a lane's context ended.
var (
	errLeaseLost   = errors.New("the lane's lease was lost")
	errReleased    = errors.New("the lane was released")
	errWorkerStops = errors.New("the worker was stopped")
	errRunOver     = errors.New("the run was ended")
	errOthersWait  = errors.New("others wait for a place")
)

// lane is a lane that this worker owns, or is about to.
//
// serve runs on one goroutine and starts the others: keep (lease), the event log, and
// while a run is live the raider's reader. The fields under mu are what they share.
type lane struct {
	w      *Worker
	raider *Raider
	class  subjects.Class
	id     subjects.LaneID

	// ctx ends when the lane is lost or released; nothing may be published for the
	// lane after it.
	ctx   context.Context //nolint:containedctx // the lane's life is what it stands for, as with http.Request
	end   context.CancelCauseFunc
	done  chan struct{} // closed when out of the table and no process of the lane is left
	wake  chan struct{} // capacity 1: look at the backlog
	leave chan struct{} // capacity 1: evicted
	renew chan struct{} // capacity 1: renew now
	out   *eventLog

	// woken is the last message in the backlog that was heard of; the truth is there.
	woken atomic.Pointer[bus.Message]

	early chan bus.Message // see lookEarly; nil when it has been looked at

	// Used by serve's goroutine only.
	opened bool                             // the last message was an open, no prompt
	after  uint64                           // the sequence in BACKLOG of the last prompt that has ended here
	told   map[subjects.SessionID][]toldRun // see keepRun
	tail   chan struct{}                    // closed when what follows from its end has been done; nil: nothing yet

	renewing sync.Mutex // held while a renewal is published

	mu        sync.Mutex // guards the rest
	epoch     uint64
	ownSeq    uint64 // the last sequence of the lane's own subject that is ours
	lease     shim.Boottime
	link      context.Context //nolint:containedctx // the link on which ownership was last confirmed
	confirmed chan struct{}   // closed and replaced at each renewal
	bt        baton
	releasing bool
	idle      time.Time   // zero while a run is live
	evicted   bool        // asked to leave
	run       *run        // nil between runs
	proc      *process    // nil when there is no raider process
	askers    []*nats.Msg // offers that wait until the tree is gone
	state     string
	since     time.Time
}

func newLane(w *Worker, bt baton) *lane {
	ctx, end := context.WithCancelCause(context.Background())
	l := &lane{
		w: w, raider: bt.raider, class: bt.class, id: bt.lane, bt: bt,
		ctx: ctx, end: end, told: map[subjects.SessionID][]toldRun{},
		done: make(chan struct{}), wake: make(chan struct{}, 1), leave: make(chan struct{}, 1), renew: make(chan struct{}, 1),
		confirmed: make(chan struct{}), state: "starting", since: time.Now(),
	}
	l.out = newEventLog(l)
	return l
}

// abandon ends a lane that was never claimed.
func (l *lane) abandon() {
	l.end(errReleased)
	close(l.done)
}

// claimed notes that the claim was stored under seq. begin is when it was sent.
func (l *lane) claimed(link context.Context, seq uint64, begin shim.Boottime) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.ownSeq = seq, seq
	l.lease = l.w.leaseEnd(begin)
	l.link = link
}

// adopt takes over a baton of the lane that came again. False when the lane is on its
// way out: then the baton is the next owner's.
func (l *lane) adopt(bt baton) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.releasing || l.ctx.Err() != nil {
		return false
	}
	if bt.seq >= l.bt.seq {
		l.bt.seq, l.bt.reply = bt.seq, bt.reply
	}
	l.w.extend(bt.reply)
	signal(l.wake) // it came because something was published
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *lane) owner() subjects.Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return subjects.Owner{Instance: l.w.instance, Epoch: l.epoch}
}

// idleSince says whether the lane is warm and idle, since when, and whether it is leaving.
func (l *lane) idleSince() (idle bool, at time.Time, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.idle.IsZero() && !l.releasing, l.idle, l.evicted
}

// evict asks a warm lane to leave; false when another has asked before.
func (l *lane) evict() bool {
	l.mu.Lock()
	first := !l.evicted
	l.evicted = true
	l.mu.Unlock()
	signal(l.leave)
	return first
}

func (l *lane) setState(state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.since = state, time.Now()
}

// serve runs the lane's prompts until it is lost or given up. It holds a place when it
// is called and none when it returns.
func (l *lane) serve() {
	defer close(l.done)
	var kept sync.WaitGroup
	kept.Go(l.keep)
	kept.Go(l.out.run)

	place, err := l.work()
	// Whatever ended it: first nothing of the lane runs any more, then it is let go.
	l.endProcess(err)
	if l.tail != nil {
		<-l.tail
	}
	if l.ctx.Err() == nil {
		l.release()
	}
	l.end(errReleased)
	kept.Wait()
	l.w.leave(l)
	l.answerAskers()
	if place {
		l.w.places.give(l.raider)
	}
	if cause := context.Cause(l.ctx); errors.Is(cause, errLeaseLost) {
		l.w.log.Warn("lane lost", "lane", string(l.id), "raider", string(l.raider.Name))
	}
}

// work is the loop of a lane. It returns whether it still holds a place, and why it ended.
func (l *lane) work() (place bool, err error) {
	place = true
	w := l.w
	// First listen, then look: what comes in between is not missed.
	control := make(chan *nats.Msg, 256)
	stopControls := make(chan struct{})
	subs := []struct {
		subject string
		handler nats.MsgHandler
	}{
		{w.fleet.WakeLane(l.raider.Name, l.id), func(m *nats.Msg) {
			l.woken.Store(&bus.Message{Header: m.Header})
			signal(l.wake)
		}},
		{w.fleet.Control(l.id), func(m *nats.Msg) {
			select {
			case control <- m:
			case <-stopControls:
			}
		}},
	}
	var controls sync.WaitGroup
	controls.Go(func() {
		for {
			select {
			case m := <-control:
				// An answer may have to ask who else is attached; a cancel doesn't wait for it.
				controls.Go(func() { l.handleControl(m) })
			case <-stopControls:
				return
			}
		}
	})
	defer func() { close(stopControls); controls.Wait() }()
	for _, s := range subs {
		sub, err := w.b.Conn().Subscribe(s.subject, s.handler)
		if err != nil {
			return place, fmt.Errorf("listen for the lane: %w", err)
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	// The look behind them is on the same connection: its answer says that they are there.

	// While the process ends the lane answers: who closes a session asks until there is none.
	defer func() { l.endProcess(err) }()

	idleTTL := time.NewTimer(l.raider.IdleTTL)
	defer idleTTL.Stop()
	again := false // a prompt has just been run
	for {
		if w.draining() {
			return place, nil // what waits is another worker's
		}
		ran, err := l.next(again)
		if errors.Is(err, errOthersWait) {
			return place, nil
		}
		if err != nil {
			return place, err
		}
		// An open keeps nobody from a place: what waits behind it is the session's own prompt.
		again = ran && (again || !l.opened)
		if ran {
			continue
		}
		if l.opened && l.procEnded() == nil {
			return place, nil // the raider could not be opened: nothing is warm
		}
		// Nothing waits: stay warm, without a place and without polling.
		l.warm(true)
		w.places.give(l.raider)
		place = false
		idleTTL.Reset(l.raider.IdleTTL)
		select {
		case <-l.wake:
		case <-l.leave:
			return place, nil
		case <-idleTTL.C:
			return place, nil
		case <-w.drain:
			return place, nil
		case <-l.procEnded():
			// Nobody is left to stay warm for.
			return place, nil
		case <-l.ctx.Done():
			return place, context.Cause(l.ctx)
		}
		if !w.places.take(l.raider) {
			return place, nil // so that a free host takes it
		}
		place = true
		l.warm(false)
	}
}

func (l *lane) warm(idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if idle {
		l.idle = time.Now()
		l.state = "warm"
	} else {
		l.evicted = false // work came first
		l.idle = time.Time{}
		l.state = "starting"
	}
	l.since = time.Now()
}

// next runs the lane's next prompt. False: nothing waits. After a prompt has been run,
// another one is left when others wait for a place: one endless backlog starves nobody.
func (l *lane) next(again bool) (ran bool, err error) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if err := l.hold(l.ctx); err != nil {
			return false, err
		}
		m, err := l.heard(), error(nil)
		if l.early != nil {
			m = <-l.early
			l.early = nil
		}
		if m.Seq == 0 {
			bound, cancel := l.w.b.Bound(l.ctx, l.w.b.AckWait()/3)
			m, err = l.w.b.Next(bound, l.w.fleet.BacklogStream(), l.w.fleet.BacklogLane(l.raider.Name, l.id), l.after+1)
			cancel()
		}
		switch {
		case errors.Is(err, bus.ErrNotFound):
			return false, nil
		case err == nil && again && l.w.othersWait(l.ctx):
			return false, errOthersWait
		case err == nil:
			return true, l.execute(m)
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return false, context.Cause(l.ctx)
		}
	}
}

// lookEarly reads the backlog while the claim is on its way. What it finds is the lane's
// next prompt: nothing comes before it any more. Had the earlier owner ended it meanwhile,
// its run record would say so. That it finds nothing says nothing: the lane does not listen
// yet.
func (l *lane) lookEarly(ctx context.Context) {
	early := make(chan bus.Message, 1)
	l.early = early
	ctx, cancel := l.w.b.Bound(ctx, 0)
	go func() { // ends with its bound; waited for by next, where the claim is accepted
		defer cancel()
		m, err := l.w.b.Next(ctx, l.w.fleet.BacklogStream(), l.w.fleet.BacklogLane(l.raider.Name, l.id), 1)
		if err != nil {
			m = bus.Message{} // next looks again
		}
		early <- m
	}()
}

// heard is the lane's next prompt without its body, when the message that woke the lane
// is known to be it: nothing is between it and the one that ended here last. Else its
// sequence is 0, and the backlog has to be read.
//
// Whoever takes a prompt out of the backlog writes its run record first, so one that has
// gone meanwhile is not run: its record can't be created.
func (l *lane) heard() bus.Message {
	m := l.woken.Swap(nil)
	// A slot's prompts are on a subject for each principal: what lies between them the
	// message doesn't tell.
	if _, ok := l.id.Session(); m == nil || l.after == 0 || !ok {
		return bus.Message{}
	}
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil || seq <= l.after {
		return bus.Message{}
	}
	// Of the lane's subject; 0 when nothing was left in it.
	last, err := strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64)
	if err != nil || last > l.after {
		return bus.Message{}
	}
	return bus.Message{Seq: seq, Header: m.Header}
}

func (w *Worker) draining() bool {
	select {
	case <-w.drain:
		return true
	default:
		return false
	}
}
