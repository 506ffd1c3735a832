package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// run is the execution of one prompt.
type run struct {
	l      *lane
	header subjects.PromptHeader
	seq    uint64 // of the message in BACKLOG
	ahead  bool   // begun by its header alone: the body is read with the session
	body   []byte // the raw params of session/prompt
	rev    uint64 // of the run record
	record subjects.RunRecord
	story  *story // written under the lane's lock
	told   bool   // the raider has answered; guarded by the lane's lock
	last   uint64 // n of the last event of the turn, once told; guarded as told

	lostTold bool // that the agent's earlier session could not be loaded

	bound <-chan struct{} // closed when the agent's new session is noted; nil: none is

	read    chan struct{} // closed when the following are set
	meta    subjects.SessionMeta
	marked  bool // to be cancelled
	readErr error

	// ctx ends when the run must end now, whatever the raider says.
	ctx  context.Context //nolint:containedctx // the run's life, ended from other goroutines
	stop context.CancelCauseFunc

	mu        sync.Mutex // guards the rest
	cancelled bool
	sent      bool // the prompt goes to the raider: from now on the raider ends the turn
	closed    bool // nothing is started for the run any more
	asks      map[subjects.AskID]*ask
	started   sync.WaitGroup
}

// prompt is the id that is told of the run; empty for one that only opens the raider.
func (r *run) prompt() subjects.PromptID {
	if r.header.Kind == subjects.KindOpen {
		return ""
	}
	return r.header.Prompt
}

// refusal is an error after which nothing has run.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

// execute runs the prompt that m holds, to its one outcome. An error means that the
// lane is lost; everything else is an outcome.
func (l *lane) execute(m bus.Message) error {
	h, err := subjects.ParsePromptHeader(m.Header)
	l.opened = err == nil && h.Kind == subjects.KindOpen
	if l.opened {
		return l.openAhead(h, m.Seq)
	}
	if err != nil {
		// Not written by a front door. It must not hold up the lane.
		l.w.log.Error("a message in the backlog is no prompt", "lane", string(l.id), "seq", m.Seq, "error", err)
		return l.do(func(ctx context.Context) error {
			return l.w.b.DeleteMessage(ctx, l.w.fleet.BacklogStream(), m.Seq)
		})
	}
	r := &run{l: l, header: h, seq: m.Seq, body: m.Data, ahead: m.Subject == "", asks: map[subjects.AskID]*ask{}}
	r.ctx, r.stop = context.WithCancelCause(l.ctx)
	defer r.stop(nil)
	// Read beside the record's creation, which costs no time then. Whoever cancels in
	// between finds the record and asks the owner until the prompt has ended; whoever
	// closes the session cancels what he finds in the backlog.
	r.readAhead()
	proceed, err := r.begin()
	if err != nil || !proceed {
		<-r.read
		return err
	}
	l.setRun(r)
	defer l.setRun(nil)
	defer r.close()
	out, err := r.perform()
	r.stop(nil) // no signal for a turn that is over
	if r.bound != nil {
		<-r.bound // the next run finds the session, wherever it is
	}
	if err != nil {
		return err
	}
	r.closeAsks()
	return r.finish(out)
}

func (l *lane) setRun(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run = r
	l.state, l.since = "running", time.Now()
}

// spawn runs f on a goroutine that execute waits for; false when the run is over.
func (r *run) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.started.Go(f)
	return true
}

// close waits for all that the run has started.
func (r *run) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop(nil)
	r.closeAsks()
	r.started.Wait()
}

// begin creates the run record. proceed is false when there is nothing to run.
func (r *run) begin() (proceed bool, err error) {
	l := r.l
	r.record = subjects.RunRecord{
		State: subjects.RunRunning, Session: r.header.Session, Principal: r.header.Principal,
		Raider: l.raider.Name, Lane: l.id, Owner: l.owner(), Attempt: 1, Started: time.Now(),
	}
	key, bucket := subjects.RunKey(r.header.Prompt), l.w.fleet.RunsBucket()
	expect := uint64(0)
	for {
		err := l.do(func(ctx context.Context) error {
			var err error
			r.rev, err = l.w.b.PutJSON(ctx, bucket, key, r.record, expect, 0)
			return err
		})
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, bus.ErrConflict) {
			return false, err
		}
		var have subjects.RunRecord
		var rev uint64
		err = l.do(func(ctx context.Context) error {
			var err error
			rev, err = l.w.b.GetJSON(ctx, bucket, key, &have)
			return err
		})
		switch {
		case errors.Is(err, bus.ErrNotFound):
			expect = rev
			continue
		case errors.Is(err, bus.ErrCorrupt):
			// Whether it ran nobody can tell any more; it must not hold up the lane.
			r.rev = rev
			return false, r.finish(failed(&subjects.RunError{Message: "the prompt's run record can't be read; it was not run"}))
		case err != nil:
			return false, err
		case have.State.Ended():
			// Ended, or cancelled before it ran: tell it again and let it go.
			r.record, r.rev = have, rev
			return false, r.settle()
		case have.Owner == r.record.Owner:
			r.rev = rev // an earlier try of our own
			r.record = have
			return true, nil
		case have.Owner.Epoch > r.record.Owner.Epoch:
			l.lose("a newer owner runs the prompt")
			return false, errLeaseLost
		}
		// Running under an older epoch: its worker was lost.
		lost := have.Owner.Instance
		l.w.log.Info("a prompt's worker was lost", "lane", string(l.id), "prompt", string(r.header.Prompt), "lost", string(lost), "attempt", have.Attempt, "on_worker_loss", l.raider.OnWorkerLoss)
		if err := r.closeOldAsks(); err != nil {
			return false, err
		}
		if <-r.read; r.readErr == nil && r.marked {
			// It was cancelled while it ran: any ending after that is 'cancelled'.
			r.record, r.rev = have, rev
			return false, r.finish(subjects.Outcome{State: subjects.RunCancelled, Worker: lost})
		}
		if l.raider.OnWorkerLoss == "retry" && have.Attempt < l.raider.MaxAttempts {
			r.record.Attempt = have.Attempt + 1
			expect = rev
			continue
		}
		text := fmt.Sprintf("worker %s was lost while it ran this prompt; it was not run again", lost)
		if l.raider.OnWorkerLoss == "retry" {
			text = fmt.Sprintf("worker %s was lost while it ran this prompt; attempt %d of %d was the last", lost, have.Attempt, l.raider.MaxAttempts)
		}
		r.record, r.rev = have, rev
		// The lost worker's last event is not known to us: readers read EVENTS to its
		// end before they show this outcome.
		return false, r.finish(subjects.Outcome{State: subjects.RunFailed, Error: &subjects.RunError{Message: text}, Worker: lost})
	}
}

// perform runs the prompt in the session's raider process.
func (r *run) perform() (subjects.Outcome, error) {
	l := r.l
	<-r.read
	if r.readErr != nil {
		if err := l.do(r.look); err != nil {
			return subjects.Outcome{}, err
		}
	}
	if r.marked {
		return subjects.Outcome{State: subjects.RunCancelled}, nil
	}
	if r.meta.State != subjects.SessionOpen {
		if r.meta.State == "" {
			return refused("the session is gone"), nil
		}
		return subjects.Outcome{State: subjects.RunCancelled}, nil
	}
	body, err := r.payload()
	if err != nil {
		if l.lost(err) || r.ctx.Err() != nil {
			return r.unstarted(err)
		}
		return subjects.Outcome{State: subjects.RunFailed, Error: &subjects.RunError{Message: "the prompt's content is missing: " + safeText(err)}}, nil
	}
	if err := r.userEvent(body); err != nil {
		return subjects.Outcome{}, err
	}
	p, err := l.processFor(r)
	if err != nil {
		return r.unstarted(err)
	}
	params, err := p.carry(body)
	if err == nil {
		params, err = rawjson.Set(params, "sessionId", quote(p.inner))
	}
	if err != nil {
		return refused("the prompt's params are no object"), nil //nolint:nilerr // an outcome like any other
	}
	if err := l.hold(r.ctx); err != nil && l.ctx.Err() != nil {
		return subjects.Outcome{}, err
	}
	l.setState("running")
	r.mu.Lock()
	r.sent = !r.cancelled
	sent := r.sent
	r.mu.Unlock()
	if !sent {
		return subjects.Outcome{State: subjects.RunCancelled}, nil
	}
	p.settled(r)
	result, err := p.conn.CallMarked(r.ctx, "session/prompt", params, r.answered)
	return r.ended(p, result, err)
}

// readAhead begins to read the session's record and the cancel mark.
func (r *run) readAhead() {
	r.read = make(chan struct{})
	go func() { // waited for by perform, or by execute
		defer close(r.read)
		ctx, cancel := r.l.w.b.Bound(r.ctx, r.l.w.b.AckWait()/3)
		defer cancel()
		r.readErr = r.look(ctx)
	}()
}

// look reads the session's record, the cancel mark and, of a run that was begun by its
// header, the body; no record is a meta without state, no body is nil.
func (r *run) look(ctx context.Context) error {
	l := r.l
	var markErr, bodyErr error
	var marking sync.WaitGroup
	marking.Go(func() {
		var mark subjects.CancelMark
		_, markErr = l.w.b.GetJSON(ctx, l.w.fleet.RunsBucket(), subjects.CancelKey(r.header.Prompt), &mark)
	})
	if r.ahead && r.header.Payload == "" {
		marking.Go(func() {
			var m bus.Message
			m, bodyErr = l.w.b.Next(ctx, l.w.fleet.BacklogStream(), l.w.fleet.BacklogLane(l.raider.Name, l.id), r.seq)
			if bodyErr == nil && m.Seq == r.seq {
				r.body = m.Data
			}
		})
	}
	_, err := l.w.b.GetJSON(ctx, l.w.fleet.SessionsBucket(), subjects.MetaKey(r.header.Principal, r.header.Session), &r.meta)
	marking.Wait()
	r.marked = markErr == nil || errors.Is(markErr, bus.ErrCorrupt)
	for _, err := range []error{err, markErr, bodyErr} {
		// A session whose record can't be read is as good as none.
		if err != nil && !errors.Is(err, bus.ErrNotFound) && !errors.Is(err, bus.ErrCorrupt) {
			return err
		}
	}
	return nil
}

func (r *run) payload() ([]byte, error) {
	if r.header.Payload == "" {
		if r.body == nil {
			return nil, bus.ErrNotFound
		}
		return r.body, nil
	}
	var body []byte
	err := r.l.do(func(context.Context) error {
		var err error
		body, err = r.l.w.b.GetPayload(r.ctx, r.header.Payload) //nolint:contextcheck // longer than one request
		if r.ctx.Err() != nil {
			return errRunOver
		}
		return err
	})
	return body, err
}

// userEvent writes the user's message, the first event of the run.
func (r *run) userEvent(body []byte) error {
	blocks, _ := rawjson.Get(body, "prompt")
	if len(blocks) == 0 {
		blocks = json.RawMessage("[]")
	}
	text, err := json.Marshal(subjects.UserMessage{
		Prompt: blocks, Time: r.record.Started,
		Origin: string(r.header.Origin.FrontDoor) + " " + string(r.header.Origin.Attachment),
	})
	if err != nil {
		return err
	}
	r.l.mu.Lock()
	r.story = newStory(r.header, blocks)
	r.l.mu.Unlock()
	err = r.l.out.append(r.header.Session, subjects.EventUser, r.header.Prompt, text, r.story.first)
	return err
}

// unstarted is the outcome of a run whose raider could not be had.
func (r *run) unstarted(err error) (subjects.Outcome, error) {
	var no refusal
	switch {
	case r.l.ctx.Err() != nil:
		return subjects.Outcome{}, context.Cause(r.l.ctx)
	case errors.Is(err, errLeaseLost):
		r.l.lose("the raider's deadline passed")
		return subjects.Outcome{}, errLeaseLost
	case r.wasCancelled():
		return subjects.Outcome{State: subjects.RunCancelled}, nil
	case errors.As(err, &no):
		return refused(no.text), nil
	case errors.Is(context.Cause(r.ctx), errWorkerStops):
		return failed(r.stoppedText()), nil
	}
	return failed(&subjects.RunError{Message: r.l.redact(err.Error())}), nil
}

// answered marks the end of the turn, once, when the raider's answer has been read: what
// comes behind it, in the same write even, is no part of the turn, nor of its transcript
// entry, and is asked in vain.
func (r *run) answered() {
	last := r.l.out.last(r.header.Session)
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if !r.told {
		r.told, r.last = true, last
	}
}

// ended is the outcome of a run whose raider was asked.
func (r *run) ended(p *process, result json.RawMessage, err error) (subjects.Outcome, error) {
	r.closeAsks()
	r.answered() // where there was no answer
	out := subjects.Outcome{LastEpoch: r.l.owner().Epoch, LastN: r.last}
	var peer *rpc.Error
	switch {
	case err == nil:
		reason, _ := rawjson.Get(result, "stopReason")
		if json.Unmarshal(reason, &out.StopReason) != nil || out.StopReason == "" {
			out.State = subjects.RunFailed
			out.Error = &subjects.RunError{Message: "the raider answered without a stop reason"}
			break
		}
		out.State, out.Result = subjects.RunCompleted, result
		if out.StopReason == "cancelled" && !r.wasCancelled() {
			// The raider's own decision; to the client it is a stop reason like any other.
			out.State = subjects.RunCancelled
		}
	case errors.As(err, &peer):
		out.State = subjects.RunFailed
		out.Error = &subjects.RunError{Message: r.l.redact(peer.Message), Code: peer.Code, Data: r.l.redactJSON(peer.Data)}
		if r.l.raider.Kind == KindStream && declined(peer.Data) {
			// The code and the data are the adapter's way to say so.
			out.State, out.Error = subjects.RunRefused, &subjects.RunError{Message: out.Error.Message}
		}
	case r.l.ctx.Err() != nil:
		return out, context.Cause(r.l.ctx)
	case errors.Is(context.Cause(r.ctx), errWorkerStops):
		out.State = subjects.RunFailed
		out.Error = r.stoppedText()
		p.kill()
	default:
		text := p.epitaph()
		if p.missedDeadline() {
			// The shim knew before this worker did, which was frozen perhaps. What becomes
			// of the prompt is the next owner's to say.
			r.l.lose("the raider's deadline passed")
			return out, errLeaseLost
		}
		out.State = subjects.RunFailed
		out.Error = &subjects.RunError{Message: r.l.redact(text)}
	}
	if r.wasCancelled() {
		// After a cancel any ending is 'cancelled'.
		out = subjects.Outcome{State: subjects.RunCancelled, LastEpoch: out.LastEpoch, LastN: out.LastN}
	}
	return out, nil
}

// declined says whether a stream raider refused the prompt, as its adapter tells.
func declined(data json.RawMessage) bool {
	var d struct {
		Fleet struct {
			Outcome string `json:"outcome"`
		} `json:"raiderfleet"`
	}
	return json.Unmarshal(data, &d) == nil && d.Fleet.Outcome == string(subjects.RunRefused)
}

func (r *run) stoppedText() *subjects.RunError {
	return &subjects.RunError{Message: fmt.Sprintf("worker %s was stopped while it ran this prompt", r.l.w.instance)}
}

func refused(text string) subjects.Outcome {
	return subjects.Outcome{State: subjects.RunRefused, Error: &subjects.RunError{Message: text}}
}

func failed(e *subjects.RunError) subjects.Outcome {
	return subjects.Outcome{State: subjects.RunFailed, Error: e}
}

func quote(s string) json.RawMessage {
	text, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`)
	}
	return text
}
