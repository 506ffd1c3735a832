package worker

import (
	"context"
	"encoding/json"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// handleControl answers a request to the lane's owner.
func (l *lane) handleControl(m *nats.Msg) {
	var req subjects.ControlRequest
	var reply subjects.ControlReply
	if err := json.Unmarshal(m.Data, &req); err != nil {
		reply.Error = "the request is not JSON"
	} else {
		reply = l.control(req)
	}
	if m.Reply == "" {
		return
	}
	body, err := json.Marshal(reply)
	if err == nil {
		_ = m.Respond(body) // who asked asks again
	}
}

func (l *lane) control(req subjects.ControlRequest) subjects.ControlReply {
	l.mu.Lock()
	r := l.run
	p := l.proc
	l.mu.Unlock()
	switch req.Op {
	case subjects.ControlCancel:
		if r == nil || r.header.Prompt != req.Prompt || r.header.Principal != req.Principal {
			return subjects.ControlReply{Error: "the prompt does not run here"}
		}
		r.cancel()
	case subjects.ControlAnswer:
		if r == nil || r.header.Principal != req.Principal {
			return subjects.ControlReply{Decided: true}
		}
		r.mu.Lock()
		a := r.asks[req.Ask]
		r.mu.Unlock()
		if a == nil {
			return subjects.ControlReply{Decided: true}
		}
		if !a.answer(req.Outcome, req.By) {
			return subjects.ControlReply{Decided: true}
		}
	case subjects.ControlClose:
		// A run that has ended may still be settled: the lane leaves when it is idle.
		has := p != nil && p.session == req.Session && p.meta.Principal == req.Principal
		if has || r != nil && r.header.Session == req.Session && r.header.Principal == req.Principal {
			if r != nil && r.header.Kind == subjects.KindOpen {
				r.stop(errRunOver)
			}
			l.evict()
			return subjects.ControlReply{}
		}
		return subjects.ControlReply{Decided: true}
	case subjects.ControlSet:
		return l.set(req)
	case subjects.ControlReset:
		return l.reset(req)
	default:
		return subjects.ControlReply{Error: "unknown request " + string(req.Op)}
	}
	return subjects.ControlReply{}
}

// handleRequest answers requests to this worker.
func (w *Worker) handleRequest(m *nats.Msg) {
	var req subjects.WorkerRequest
	if json.Unmarshal(m.Data, &req) != nil {
		w.respond(m, subjects.WorkerReply{Error: "the request is not JSON"})
		return
	}
	switch req.Op {
	case subjects.WorkerOffer:
		w.answerOffer(m, req)
	case subjects.WorkerHome:
		w.respond(m, subjects.WorkerReply{Offer: w.answerHome(req)})
	case subjects.WorkerLanes:
		w.respond(m, subjects.WorkerReply{Lanes: w.Lanes()})
	default:
		w.respond(m, subjects.WorkerReply{Error: "unknown request " + string(req.Op)})
	}
}

func (w *Worker) respond(m *nats.Msg, r subjects.WorkerReply) {
	body, err := json.Marshal(r)
	if err == nil {
		_ = m.Respond(body) // who asked asks again
	}
}

// answerOffer: mine while the lane is in the table; gone when it is not, or in a
// release. A lane that is being killed is neither: no answer until its tree is gone.
func (w *Worker) answerOffer(m *nats.Msg, req subjects.WorkerRequest) {
	l := w.owned(req.Lane)
	if l == nil {
		w.respond(m, subjects.WorkerReply{Offer: subjects.OfferGone})
		return
	}
	if l.adopt(baton{raider: l.raider, class: l.class, lane: l.id, seq: req.BatonSeq, reply: req.BatonReply}) {
		w.respond(m, subjects.WorkerReply{Offer: subjects.OfferMine})
		return
	}
	l.mu.Lock()
	releasing := l.releasing
	l.mu.Unlock()
	if releasing {
		w.respond(m, subjects.WorkerReply{Offer: subjects.OfferGone})
		return
	}
	l.mu.Lock()
	l.askers = append(l.askers, m)
	l.mu.Unlock()
	if w.owned(req.Lane) != l {
		l.answerAskers() // it ended in between
	}
}

// answerAskers answers the offers that came while the lane's tree was being killed.
func (l *lane) answerAskers() {
	l.mu.Lock()
	askers := l.askers
	l.askers = nil
	l.mu.Unlock()
	for _, m := range askers {
		l.w.respond(m, subjects.WorkerReply{Offer: subjects.OfferGone})
	}
}

func (l *lane) status() subjects.LaneStatus {
	last := l.out.lastTime()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := subjects.LaneStatus{
		Lane: l.id, Raider: l.raider.Name, Instance: l.w.instance, Host: l.w.host,
		State: l.state, Since: l.since, Epoch: l.epoch, LastEvent: last,
	}
	if l.releasing {
		s.State = "releasing"
	}
	if l.run != nil {
		s.Session, s.Principal, s.Prompt = l.run.header.Session, l.run.header.Principal, l.run.prompt()
	}
	if l.proc != nil {
		s.PID = l.proc.sp.PID()
		if s.Session == "" {
			s.Session = l.proc.session
		}
	}
	return s
}

// lookForMark reads the run's cancel mark, in the background of a renewal: a cancel
// whose request got lost is found all the same.
func (l *lane) lookForMark(r *run) {
	if r.wasCancelled() || r.header.Kind == subjects.KindOpen {
		return
	}
	r.spawn(func() {
		ctx, cancel := l.w.b.Bound(r.ctx, l.w.b.AckWait()/3)
		defer cancel()
		var mark subjects.CancelMark
		if _, err := l.w.b.GetJSON(ctx, l.w.fleet.RunsBucket(), subjects.CancelKey(r.header.Prompt), &mark); err == nil {
			r.cancel()
		}
	})
}

func (r *run) wasCancelled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cancelled
}

// cancel asks the raider to end the turn, and goes on to signals when it doesn't. It
// does not block; asking again changes nothing.
func (r *run) cancel() {
	r.mu.Lock()
	if r.cancelled || r.ctx.Err() != nil {
		r.mu.Unlock()
		return
	}
	r.cancelled = true
	r.mu.Unlock()
	r.spawn(func() {
		for _, a := range r.openAsks() {
			a.decide(json.RawMessage(outcomeCancelled), "cancelled", "")
		}
		r.escalate()
	})
}

// cancelAgain is when session/cancel is sent a second time.
const cancelAgain = 100 * time.Millisecond

// escalate: session/cancel, then SIGINT, SIGTERM and SIGKILL, one grace apart.
func (r *run) escalate() {
	r.mu.Lock()
	sent := r.sent
	r.mu.Unlock()
	p := r.process()
	if !sent || p == nil {
		// The raider has not been asked yet, and now it won't be: a cancel that came before
		// its prompt would be for nothing.
		r.stop(context.Canceled)
		return
	}
	cancel := json.RawMessage(`{"sessionId":` + string(quote(p.inner)) + `}`)
	// Not waited for: a raider that does not read its input blocks the pipe, and the signals
	// are for that one. The end of the process ends the writing.
	notify := func() { go func() { _ = p.conn.Notify("session/cancel", cancel) }() }
	notify()
	again := time.NewTimer(cancelAgain)
	defer again.Stop()
	select {
	case <-again.C:
		// The first one may have overtaken a prompt that was being written.
		notify()
	case <-r.ctx.Done():
		return
	}
	grace := r.l.w.c.CancelGrace
	if grace <= 0 {
		return
	}
	steps := []func(){
		func() { p.signalGroup(syscall.SIGINT) },
		func() { p.signalGroup(syscall.SIGTERM) },
		p.kill,
	}
	if r.l.raider.Kind == KindStream {
		steps = steps[1:] // its command has had SIGINT for session/cancel
	}
	for _, step := range steps {
		timer := time.NewTimer(grace)
		select {
		case <-timer.C:
			step()
		case <-r.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// process is the raider process of the run's session, nil while there is none.
func (r *run) process() *process {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if p := r.l.proc; p != nil && p.session == r.header.Session {
		return p
	}
	return nil
}

// stopRun ends the lane's run with cause.
func (l *lane) stopRun(cause error) {
	l.mu.Lock()
	r, p := l.run, l.proc
	l.mu.Unlock()
	if r != nil {
		r.stop(cause)
		if p != nil {
			p.kill()
		}
	}
}
