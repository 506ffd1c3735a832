package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// refused is what a client's error or unreadable answer counts as. The worker decides
// what follows from it.
const refused = `{"outcome":"cancelled"}`

// shownAsk is a raider's question that this client has been asked.
type shownAsk struct {
	prompt subjects.PromptID
	cancel context.CancelFunc // takes the question back
}

// showAsk asks the client, until ctx ends. It does not block.
func (a *attachment) showAsk(ctx context.Context, body subjects.AskBody) {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	if a.asks[body.Ask] != nil || a.detached {
		a.mu.Unlock()
		cancel()
		return
	}
	a.asks[body.Ask] = &shownAsk{prompt: body.Prompt, cancel: cancel}
	a.mu.Unlock()
	ok := a.c.spawn(func() {
		defer cancel()
		result, err := a.c.rpc.Call(ctx, "session/request_permission", body.Request)
		var answered *rpc.Error
		if ctx.Err() != nil || err != nil && !errors.As(err, &answered) {
			return // decided elsewhere, or the client has gone: nobody has answered
		}
		a.decide(ctx, body, clientOutcome(result, answered))
	})
	if !ok {
		cancel()
	}
}

// clientOutcome is the raw outcome of a client's answer. Whether it is a valid one, the
// worker says.
func clientOutcome(result json.RawMessage, fault *rpc.Error) json.RawMessage {
	if fault != nil {
		return json.RawMessage(refused)
	}
	outcome, ok := rawjson.Get(result, "outcome")
	if !ok || outcome[0] != '{' {
		return json.RawMessage(refused)
	}
	return outcome
}

// decide brings a client's answer to the lane's owner, until it has it or the ask is
// over: the owner may be changing.
func (a *attachment) decide(ctx context.Context, body subjects.AskBody, outcome json.RawMessage) {
	req := subjects.ControlRequest{
		Op: subjects.ControlAnswer, Principal: a.c.principal, Session: a.session, Prompt: body.Prompt,
		Ask: body.Ask, Outcome: outcome, By: string(a.id),
	}
	for {
		reply, err := a.f.control(ctx, body.Lane, req)
		if err == nil && reply.Error == "" {
			return
		}
		if !sleep(ctx, controlEvery) {
			return
		}
	}
}

// askDone takes a question back that was decided elsewhere.
func (a *attachment) askDone(id subjects.AskID) {
	a.mu.Lock()
	shown := a.asks[id]
	delete(a.asks, id)
	a.mu.Unlock()
	if shown != nil {
		shown.cancel()
	}
}

// withdrawAsks takes back what is open of a prompt that has ended.
func (a *attachment) withdrawAsks(p subjects.PromptID) {
	a.mu.Lock()
	var over []*shownAsk
	for id, shown := range a.asks {
		if shown.prompt == p {
			over = append(over, shown)
			delete(a.asks, id)
		}
	}
	a.mu.Unlock()
	for _, shown := range over {
		shown.cancel()
	}
}

const (
	// controlEvery is how often a control request is repeated.
	controlEvery = time.Second
	// controlTimeout is how long an owner has to answer one.
	controlTimeout = time.Second
)

// control asks the owner of a lane.
func (f *FrontDoor) control(ctx context.Context, lane subjects.LaneID, req subjects.ControlRequest) (subjects.ControlReply, error) {
	return f.b.Control(ctx, lane, req, controlTimeout)
}
