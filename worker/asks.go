package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/policy"
	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

const (
	outcomeCancelled = `{"outcome":{"outcome":"cancelled"}}`
	// attachedEvery is how often a waiting ask looks whether a client is left.
	attachedEvery = time.Second
	// attachedTimeout is how long front doors have to say that they have one.
	attachedTimeout = 300 * time.Millisecond
	// maxOpenAsks bounds the asks of one run that are open at once: each is shown to people,
	// has an entry in ASKS, and asks the front doors once a second.
	maxOpenAsks = 64
)

// ask is a permission request of the raider that waits for an answer. The first
// decision wins; nothing allows by default.
type ask struct {
	r       *run
	id      subjects.AskID
	req     *rpc.Request
	options []permissionOption
	call    policy.Call
	callErr error // the call can't be read: only people may allow it
	body    subjects.AskBody
	ended   chan struct{}

	mu    sync.Mutex // guards the rest
	done  bool
	noes  map[string]bool // who answered with what refuses only if nobody else was asked
	doors map[string]bool // attachments known to be there
}

type permissionOption struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// ask puts the raider's question to whoever is entitled. It doesn't block. One that comes
// while maxOpenAsks of the run are open is refused with an error.
func (r *run) ask(req *rpc.Request) {
	l := r.l
	params, err := rawjson.Set(req.Params, "sessionId", quote(string(r.header.Session)))
	if err != nil {
		_ = req.ReplyError(&rpc.Error{Code: rpc.CodeInvalidParams, Message: "params must be an object"})
		return
	}
	a := &ask{r: r, id: subjects.NewAsk(), req: req, ended: make(chan struct{}), noes: map[string]bool{}, doors: map[string]bool{}}
	raw, _ := rawjson.Get(params, "options")
	if err := json.Unmarshal(raw, &a.options); err != nil {
		_ = req.ReplyError(&rpc.Error{Code: rpc.CodeInvalidParams, Message: "options must be an array of permission options"})
		return
	}
	a.body = subjects.AskBody{
		Ask: a.id, Session: r.header.Session, Principal: r.header.Principal, Raider: l.raider.Name,
		Lane: l.id, Prompt: r.header.Prompt, Owner: l.owner(), Request: params, Time: time.Now(),
	}
	a.call, a.callErr = parseToolCall(params)
	if result := r.byPolicy(a); result != nil {
		_ = req.Reply(result) // the raider may have ended
		return
	}
	if t := l.w.c.PermissionTimeout; t > 0 {
		a.body.Deadline = a.body.Time.Add(t)
	}
	r.mu.Lock()
	cancelled, full := r.cancelled || r.closed, len(r.asks) >= maxOpenAsks
	if !cancelled && !full {
		r.asks[a.id] = a
	}
	r.mu.Unlock()
	switch {
	case cancelled:
		_ = req.Reply(json.RawMessage(outcomeCancelled))
		return
	case full:
		_ = req.ReplyError(&rpc.Error{
			Code:    rpc.CodeInternal,
			Message: fmt.Sprintf("%d permission requests of this turn are open already; nobody was asked", maxOpenAsks),
		})
		return
	}
	l.setState("waiting for approval")
	if !r.spawn(a.wait) {
		a.decide(json.RawMessage(outcomeCancelled), "cancelled", "")
	}
}

// wait puts the ask in ASKS and among the events, keeps it there, and ends it when nobody
// answers. The entry is first: who comes back to the session in between finds it there, or
// gets the event.
func (a *ask) wait() {
	l := a.r.l
	bucket, key := l.w.fleet.AsksBucket(), subjects.AskKey(a.body.Session, a.id)
	if err := l.do(func(ctx context.Context) error {
		_, err := l.w.b.SetJSON(ctx, bucket, key, a.body, 0)
		return err
	}); err == nil {
		defer func() {
			_ = l.do(func(ctx context.Context) error { return l.w.b.Delete(ctx, bucket, key) }) // a new owner closes what is left
		}()
	}
	if a.show() != nil {
		a.decide(json.RawMessage(outcomeCancelled), whyOwnerLost, "")
	}
	var timeout <-chan time.Time
	if !a.body.Deadline.IsZero() {
		timer := time.NewTimer(time.Until(a.body.Deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	look := time.NewTicker(min(attachedEvery, l.w.c.ReconnectGrace/3+time.Millisecond))
	defer look.Stop()
	var gone time.Time
	for {
		select {
		case <-a.ended:
			return
		case <-timeout:
			a.refuse("timeout", "")
		case <-a.req.Context().Done():
			// The raider doesn't want to know any more, or has ended.
			a.decide(json.RawMessage(outcomeCancelled), "cancelled", "")
		case <-l.ctx.Done():
			a.decide(json.RawMessage(outcomeCancelled), whyOwnerLost, "")
		case <-look.C:
			here, sure := a.attached()
			switch {
			case here || !sure:
				gone = time.Time{}
			case gone.IsZero():
				gone = time.Now()
			case time.Since(gone) >= l.w.c.ReconnectGrace:
				a.refuse("no client", "")
			}
		}
	}
}

// show makes the ask an event, unless it has been decided.
func (a *ask) show() error {
	a.mu.Lock() // whose end comes behind it
	defer a.mu.Unlock()
	if a.done {
		return nil
	}
	text, err := json.Marshal(a.body)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if err := a.r.l.out.append(a.body.Session, subjects.EventAsk, a.body.Prompt, text, nil); err != nil {
		return err
	}
	a.r.l.w.tellAsked(a.body)
	return nil
}

// attached asks the front doors whether a client is attached to the session. sure is
// false when NATS can't tell.
func (a *ask) attached() (here, sure bool) {
	l := a.r.l
	inbox := l.w.b.Conn().NewInbox()
	replies := make(chan *nats.Msg, 64)
	sub, err := l.w.b.Conn().ChanSubscribe(inbox, replies)
	if err != nil {
		return false, false
	}
	defer func() { _ = sub.Unsubscribe() }()
	if l.w.b.Conn().PublishRequest(l.w.fleet.Attached(a.body.Session), inbox, nil) != nil {
		return false, false
	}
	timer := time.NewTimer(attachedTimeout)
	defer timer.Stop()
	doors := map[string]bool{}
	for {
		select {
		case m := <-replies:
			if m.Header.Get("Status") == "503" {
				return false, true // no responders: sure at once
			}
			var r subjects.AttachedReply
			if json.Unmarshal(m.Data, &r) == nil {
				for _, at := range r.Attachments {
					doors[string(at)] = true
				}
			}
		case <-timer.C:
			a.mu.Lock()
			a.doors = doors
			a.mu.Unlock()
			return len(doors) > 0, l.w.b.Link().Err() == nil
		case <-a.ended:
			return true, true
		}
	}
}

// answer takes what somebody answered: outcome is the raw outcome of the answer.
func (a *ask) answer(outcome json.RawMessage, by string) (decided bool) {
	var o struct {
		Outcome  string `json:"outcome"`
		OptionID string `json:"optionId"`
	}
	valid := json.Unmarshal(outcome, &o) == nil && o.Outcome == "selected" && a.offered(o.OptionID)
	if valid {
		result, err := rawjson.Set(json.RawMessage(`{}`), "outcome", outcome)
		if err == nil {
			return a.decide(result, "answered", by)
		}
	}
	// 'cancelled', an unknown option, an error: refuses, unless another client was asked
	// too and may still answer.
	a.attached()
	a.mu.Lock()
	a.noes[by] = true
	others := false
	for door := range a.doors {
		others = others || !a.noes[door]
	}
	done := a.done
	a.mu.Unlock()
	if done {
		return false
	}
	if !others {
		return a.refuse("answered", by)
	}
	return true
}

func (a *ask) offered(id string) bool {
	for _, o := range a.options {
		if o.ID == id {
			return true
		}
	}
	return false
}

// refuse decides by a reject option that was offered, where there is one.
func (a *ask) refuse(why, by string) bool {
	reason := ""
	switch why {
	case "timeout":
		reason = "Nobody answered in time."
	case "no client":
		reason = "Nobody is left who could be asked."
	}
	result := a.choose(reason, rejectOnce, rejectAlways)
	if result == nil {
		result = reasoned(json.RawMessage(outcomeCancelled), reason)
	}
	return a.decide(result, why, by)
}

// decide tells the raider and everybody. False when it was decided before.
func (a *ask) decide(result json.RawMessage, why, by string) bool {
	a.mu.Lock()
	if a.done {
		a.mu.Unlock()
		return false
	}
	a.done = true
	a.mu.Unlock()
	r := a.r
	r.mu.Lock()
	if r.asks[a.id] == a {
		delete(r.asks, a.id)
	}
	left := len(r.asks)
	r.mu.Unlock()
	if left == 0 {
		r.l.setState("running")
	}
	if why == "answered" {
		var o struct {
			Outcome struct {
				OptionID string `json:"optionId"`
			} `json:"outcome"`
		}
		if json.Unmarshal(result, &o) == nil {
			a.learn(o.Outcome.OptionID)
		}
	}
	// The event first: a client must not see the raider go on before the question goes.
	outcome, _ := rawjson.Get(result, "outcome")
	text, err := json.Marshal(subjects.AskDone{Ask: a.id, Outcome: outcome, Why: why, By: by})
	if err == nil {
		_ = r.l.out.append(a.body.Session, subjects.EventAskDone, a.body.Prompt, text, nil) // fails only with the lane
	}
	r.l.w.tellAnswered(a.body, why, by)
	_ = a.req.Reply(result) // the raider may have ended
	close(a.ended)
	return true
}

// closeAsks ends what is open when the run has ended.
func (r *run) closeAsks() {
	for _, a := range r.openAsks() {
		a.decide(json.RawMessage(outcomeCancelled), "cancelled", "")
	}
}

func (r *run) openAsks() []*ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*ask, 0, len(r.asks))
	for _, a := range r.asks {
		out = append(out, a)
	}
	return out
}

// closeOldAsks closes the asks that an older owner of the lane left behind. It tries until
// that is done: nobody else would, and an ask that nobody waits for would be shown on. The
// error is the lane's end.
func (r *run) closeOldAsks() error {
	l := r.l
	var left []bus.Record
	err := l.do(func(ctx context.Context) error {
		var err error
		left, err = l.w.b.List(ctx, l.w.fleet.AsksBucket(), subjects.AskFilter(r.header.Session))
		return err
	})
	if err != nil {
		return l.sweepable(err)
	}
	for _, rec := range left {
		var body subjects.AskBody
		if json.Unmarshal(rec.Value, &body) != nil || body.Owner.Epoch >= l.owner().Epoch {
			continue
		}
		text, err := ownerLost(body)
		if err != nil {
			return err
		}
		if err := l.out.append(r.header.Session, subjects.EventAskDone, body.Prompt, text, nil); err != nil {
			return err
		}
		l.w.tellAnswered(body, whyOwnerLost, "")
		if err := l.do(func(ctx context.Context) error { return l.w.b.Delete(ctx, l.w.fleet.AsksBucket(), rec.Key) }); err != nil {
			return l.sweepable(err)
		}
	}
	return nil
}

// sweepable passes over what can't be done here by trying again: the sweep looks at all asks.
func (l *lane) sweepable(err error) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	l.w.log.Warn("open asks of the lost owner are left to the sweep", "lane", string(l.id), "error", err)
	return nil
}

// whyOwnerLost is why an ask ended whose worker was lost.
const whyOwnerLost = "owner lost"

// ownerLost is the event that ends such an ask.
func ownerLost(body subjects.AskBody) ([]byte, error) {
	return json.Marshal(subjects.AskDone{Ask: body.Ask, Outcome: json.RawMessage(`{"outcome":"cancelled"}`), Why: whyOwnerLost})
}

// closeLeftAsks closes the asks that filter matches and over says are over, for nobody else
// will. It may be repeated.
func (w *Worker) closeLeftAsks(ctx context.Context, filter string, over func(subjects.AskBody) (bool, error)) error {
	left, err := w.b.List(ctx, w.fleet.AsksBucket(), filter)
	if err != nil {
		return err
	}
	for _, rec := range left {
		var body subjects.AskBody
		if json.Unmarshal(rec.Value, &body) != nil {
			continue // of a newer version
		}
		if is, err := over(body); err != nil || !is {
			if err != nil {
				return err
			}
			continue
		}
		text, err := ownerLost(body)
		if err != nil {
			return err
		}
		h := subjects.EventHeader{Kind: subjects.EventAskDone, Prompt: body.Prompt, Worker: body.Owner.Instance}
		m := &nats.Msg{Subject: w.fleet.Event(body.Session), Header: h.Header(), Data: text}
		if _, err := w.b.Publish(ctx, m, jetstream.WithMsgID(string(body.Ask)+".done")); err != nil {
			return err
		}
		w.tellAnswered(body, whyOwnerLost, "")
		if err := w.b.Delete(ctx, w.fleet.AsksBucket(), rec.Key); err != nil {
			return err
		}
	}
	return nil
}
