package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// Who answers what a raider asks of a client.
const (
	// ClientMethodsClient: the client that sent the running prompt, or another of the
	// session's that can.
	ClientMethodsClient = "client"
	// ClientMethodsWorker: files and terminals are the worker's, within the session's
	// directories; for the rest as ClientMethodsClient.
	ClientMethodsWorker = "worker"
	// ClientMethodsRefuse: nobody.
	ClientMethodsRefuse = "refuse"
)

const (
	// maxClientCalls bounds a raider's open requests to clients.
	maxClientCalls = 64
	// clientSilence is how long a front door may be silent while a client works on a
	// request. It says every 5 s that it does.
	clientSilence = 15 * time.Second
	// clientPatience is how long a client may work on a request that needs no person and
	// no program's end.
	clientPatience = time.Minute
)

// errClientGone: the client, or its front door, went with the request.
var errClientGone = &rpc.Error{Code: rpc.CodeInternal, Message: "the client has gone"}

// clientCapabilities are what the raider is told that its client can do, of what the
// client said.
func (r *Raider) clientCapabilities(said string) json.RawMessage {
	told := r.ofClient(said)
	if r.ClientMethods == ClientMethodsWorker {
		told = hostCapabilities(told)
	}
	return told
}

func (r *Raider) ofClient(said string) json.RawMessage {
	none := json.RawMessage(`{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false}`)
	if r.ClientMethods == ClientMethodsRefuse || said == "" {
		return none
	}
	// A terminal for signing in would be another host's.
	told, err := rawjson.Delete(json.RawMessage(said), "auth")
	if err != nil {
		return none
	}
	for _, always := range []struct{ key, value string }{
		{"fs", `{"readTextFile":false,"writeTextFile":false}`}, {"terminal", "false"},
	} {
		if _, ok := rawjson.Get(told, always.key); ok {
			continue
		}
		if with, err := rawjson.Set(told, always.key, json.RawMessage(always.value)); err == nil {
			told = with
		}
	}
	return told
}

// clientCalls are what a raider wants of clients.
type clientCalls struct {
	open sync.WaitGroup

	mu     sync.Mutex // guards the rest
	n      int
	origin subjects.Origin            // of the prompt that runs, or ran last
	bound  map[string]subjects.Origin // whose a terminal or an elicitation is
}

// from notes who sent the prompt that runs now.
func (c *clientCalls) from(o subjects.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin = o
}

func (c *clientCalls) sender() subjects.Origin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin
}

// bind notes whose key is; false when it is another client's already.
func (c *clientCalls) bind(key string, o subjects.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.bound[key]; ok && have != o {
		return false
	}
	if c.bound == nil {
		c.bound = map[string]subjects.Origin{}
	}
	c.bound[key] = o
	return true
}

func (c *clientCalls) whose(key string) (subjects.Origin, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.bound[key]
	return o, ok
}

func (c *clientCalls) unbind(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bound, key)
}

// askClient brings a raider's request to a client. It doesn't block.
func (p *process) askClient(req *rpc.Request) {
	if p.l.raider.ClientMethods == ClientMethodsRefuse {
		_ = req.ReplyError(&rpc.Error{Code: rpc.CodeMethodNotFound, Message: "method not found: " + req.Method})
		return
	}
	c := &p.calls
	c.mu.Lock()
	full := c.n >= maxClientCalls
	if !full {
		c.n++
	}
	c.mu.Unlock()
	if full {
		_ = req.ReplyError(&rpc.Error{Code: rpc.CodeInternal, Message: fmt.Sprintf("more than %d requests to clients are open", maxClientCalls)})
		return
	}
	c.open.Go(func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.n--
		}()
		if p.l.raider.serves(req.Method) {
			if result, fault := p.serveHost(req.Context(), req.Method, req.Params); fault != nil {
				_ = req.ReplyError(fault)
			} else {
				_ = req.Reply(result)
			}
			return
		}
		result, fault := p.byClient(req.Context(), req.Method, req.Params)
		switch {
		case fault != nil:
			_ = req.ReplyError(fault) // the raider may have ended
		default:
			_ = req.Reply(result)
		}
	})
}

// byClient is what a client answers to a raider's request. ctx ends when the raider takes
// it back or has ended.
func (p *process) byClient(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *rpc.Error) {
	ours, err := p.forClient(params)
	if err != nil {
		return nil, &rpc.Error{Code: rpc.CodeInvalidParams, Message: "params must be an object"}
	}
	if terminal := member(params, "terminalId"); terminal != "" && method != "terminal/create" {
		owner, ok := p.calls.whose("terminal " + terminal)
		if !ok {
			return nil, &rpc.Error{Code: rpc.CodeInvalidParams, Message: "no such terminal"}
		}
		result, state, fault := p.callClient(ctx, owner, method, ours)
		if fault = faultOf(state, method, fault); fault == nil && method == "terminal/release" {
			p.calls.unbind("terminal " + terminal)
		}
		return result, fault
	}
	// Known before the client is asked: the page behind it may be done at any time.
	elicitation := ""
	if method == "elicitation/create" {
		elicitation = member(params, "elicitationId")
	}
	gone, asked := false, map[subjects.Origin]bool{}
	for _, to := range p.clients(ctx) {
		if asked[to] {
			continue
		}
		asked[to] = true
		if elicitation != "" && !p.calls.bind("elicitation "+elicitation, to) {
			return nil, &rpc.Error{Code: rpc.CodeInvalidParams, Message: "the elicitation's id is in use"}
		}
		result, state, fault := p.callClient(ctx, to, method, ours)
		if state == subjects.ClientUnable || state == subjects.ClientGone && fault == nil {
			gone = gone || state == subjects.ClientGone
			if elicitation != "" {
				p.calls.unbind("elicitation " + elicitation)
			}
			continue
		}
		if state == subjects.ClientDone && method == "terminal/create" {
			if terminal := member(result, "terminalId"); terminal != "" && !p.calls.bind("terminal "+terminal, to) {
				// Two clients gave the same id: the raider could not tell them apart.
				p.release(ctx, to, terminal)
				return nil, &rpc.Error{Code: rpc.CodeInternal, Message: "the client gave a terminal an id that is in use"}
			}
		}
		return result, faultOf(state, method, fault)
	}
	if ctx.Err() != nil {
		return nil, &rpc.Error{Code: rpc.CodeRequestCancelled, Message: "request cancelled"}
	}
	if gone || len(asked) == 0 {
		return nil, errClientGone
	}
	return nil, faultOf(subjects.ClientUnable, method, nil)
}

// faultOf is the error that the raider gets; nil for a result.
func faultOf(state subjects.ClientState, method string, fault *rpc.Error) *rpc.Error {
	switch {
	case fault != nil:
		return fault
	case state == subjects.ClientUnable:
		return &rpc.Error{Code: rpc.CodeMethodNotFound, Message: "no client of this session can " + method}
	case state == subjects.ClientGone:
		return errClientGone
	}
	return nil
}

// forClient are params with the fleet's session id where they have one: whatever the
// raider named, sub-agents' too, belongs to the session of its process.
func (p *process) forClient(params json.RawMessage) (json.RawMessage, error) {
	if params == nil {
		return nil, nil
	}
	if _, ok := rawjson.Get(params, "sessionId"); !ok {
		if !rawjson.IsObject(params) {
			return nil, rawjson.ErrNotObject
		}
		return params, nil
	}
	return rawjson.Set(params, "sessionId", quote(string(p.session)))
}

// member is a string in an object; empty when there is none.
func member(obj json.RawMessage, key string) (s string) {
	raw, _ := rawjson.Get(obj, key)
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// clients gives whom to ask: first who sent the running prompt, then the others that are
// attached. These are looked for only when the first could not do it.
func (p *process) clients(ctx context.Context) func(func(int, subjects.Origin) bool) {
	return func(yield func(int, subjects.Origin) bool) {
		if first := p.calls.sender(); first.Attachment != "" && !yield(0, first) {
			return
		}
		for i, o := range p.l.w.attached(ctx, p.session) {
			if !yield(1+i, o) {
				return
			}
		}
	}
}

// attached are the clients that are attached to a session, of all front doors.
func (w *Worker) attached(ctx context.Context, session subjects.SessionID) []subjects.Origin {
	inbox := w.b.Conn().NewInbox()
	replies := make(chan *nats.Msg, 64)
	sub, err := w.b.Conn().ChanSubscribe(inbox, replies)
	if err != nil {
		return nil
	}
	defer func() { _ = sub.Unsubscribe() }()
	if w.b.Conn().PublishRequest(w.fleet.Attached(session), inbox, nil) != nil {
		return nil
	}
	timer := time.NewTimer(attachedTimeout)
	defer timer.Stop()
	var out []subjects.Origin
	for {
		select {
		case m := <-replies:
			if m.Header.Get("Status") == "503" {
				return out
			}
			var r subjects.AttachedReply
			if json.Unmarshal(m.Data, &r) == nil {
				for _, at := range r.Attachments {
					out = append(out, subjects.Origin{FrontDoor: r.FrontDoor, Attachment: at})
				}
			}
		case <-timer.C:
			// The same order for all of a raider's requests.
			slices.SortFunc(out, func(a, b subjects.Origin) int {
				return strings.Compare(string(a.Attachment), string(b.Attachment))
			})
			return out
		case <-ctx.Done():
			return out
		}
	}
}

// callClient asks one client. A fault with the state ClientGone says that the client had
// the request when it went.
func (p *process) callClient(ctx context.Context, to subjects.Origin, method string, params json.RawMessage) (json.RawMessage, subjects.ClientState, *rpc.Error) {
	w := p.l.w
	// What the raider wrote before it is stored first; the client is shown it first, too.
	if p.l.out.flush() != nil {
		return nil, subjects.ClientGone, errClientGone
	}
	h := subjects.ClientHeader{
		Op: subjects.ClientCall, Call: rand.Text(), Session: p.session, Method: method,
		LastEpoch: p.l.owner().Epoch, LastN: p.l.out.last(p.session),
	}
	h.Prompt, _ = p.prompt.Load().(subjects.PromptID)
	body := []byte(params)
	if len(body) > w.b.MaxInline() {
		h.Payload = "client." + h.Call
		if err := w.b.PutPayload(ctx, h.Payload, body); err != nil {
			return nil, "", &rpc.Error{Code: rpc.CodeInternal, Message: "the request is too large to be passed on"}
		}
		defer p.dropPayload(ctx, h.Payload)
		body = nil
	}
	subject := w.fleet.Client(to.FrontDoor, to.Attachment)
	inbox := w.b.Conn().NewInbox()
	replies := make(chan *nats.Msg, 16)
	sub, err := w.b.Conn().ChanSubscribe(inbox, replies)
	if err != nil {
		return nil, subjects.ClientGone, nil
	}
	defer func() { _ = sub.Unsubscribe() }()
	if w.b.Conn().PublishMsg(&nats.Msg{Subject: subject, Reply: inbox, Header: h.Header(), Data: body}) != nil {
		return nil, subjects.ClientGone, nil
	}
	takeBack := func() {
		h.Op = subjects.ClientCancel
		_ = w.b.Conn().PublishMsg(&nats.Msg{Subject: subject, Header: h.Header()}) // lost: the front door finds nobody waiting
	}
	silence := time.NewTimer(clientSilence)
	defer silence.Stop()
	var patience <-chan time.Time
	if soon(method) {
		timer := time.NewTimer(clientPatience)
		defer timer.Stop()
		patience = timer.C
	}
	for {
		select {
		case m := <-replies:
			if m.Header.Get("Status") == "503" {
				return nil, subjects.ClientGone, nil // nobody listens: it never had the request
			}
			state := subjects.ClientState(m.Header.Get(subjects.HeaderState))
			switch state {
			case subjects.ClientWorking:
				silence.Reset(clientSilence)
				_ = m.Respond(nil) // lost: it asks again
			case subjects.ClientDone:
				result, err := p.answerOf(ctx, m)
				if err != nil {
					return nil, "", &rpc.Error{Code: rpc.CodeInternal, Message: "the client's answer is missing"}
				}
				return result, state, nil
			case subjects.ClientFault:
				var fault rpc.Error
				if json.Unmarshal(m.Data, &fault) != nil {
					fault = rpc.Error{Code: rpc.CodeInternal, Message: "the client's error can't be read"}
				}
				return nil, state, &fault
			case subjects.ClientUnable, subjects.ClientGone:
				return nil, state, nil
			default: // of a newer version
				return nil, subjects.ClientUnable, nil
			}
		case <-silence.C:
			takeBack()
			return nil, subjects.ClientGone, &rpc.Error{Code: rpc.CodeInternal, Message: "the client's front door does not answer"}
		case <-patience:
			takeBack()
			return nil, "", &rpc.Error{Code: rpc.CodeInternal, Message: fmt.Sprintf("the client did not answer within %s", clientPatience)}
		case <-ctx.Done():
			takeBack()
			return nil, "", &rpc.Error{Code: rpc.CodeRequestCancelled, Message: "request cancelled"}
		}
	}
}

// soon says whether a client answers a method by itself, and soon.
func soon(method string) bool {
	switch method {
	case "fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output", "terminal/kill", "terminal/release":
		return true
	}
	return false
}

// answerOf is the result in a front door's answer.
func (p *process) answerOf(ctx context.Context, m *nats.Msg) (json.RawMessage, error) {
	ref := m.Header.Get(subjects.HeaderPayload)
	body, err := p.l.w.b.Body(ctx, ref, m.Data)
	if err != nil {
		return nil, fmt.Errorf("client's answer: %w", err)
	}
	if ref != "" {
		p.dropPayload(ctx, ref)
	}
	if !json.Valid(body) {
		return nil, errors.New("client's answer is no JSON")
	}
	return body, nil
}

// dropPayload deletes a body that has been read. What is left leaves by its age.
func (p *process) dropPayload(ctx context.Context, ref string) {
	if err := p.l.w.b.DeletePayload(context.WithoutCancel(ctx), ref); err != nil {
		p.l.w.log.Debug("payload not deleted", "error", err)
	}
}

// release gives a terminal back that the raider never heard of.
func (p *process) release(ctx context.Context, to subjects.Origin, terminal string) {
	params, err := json.Marshal(map[string]string{"sessionId": string(p.session), "terminalId": terminal})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientSilence)
	defer cancel()
	if _, _, fault := p.callClient(ctx, to, "terminal/release", params); fault != nil {
		p.l.w.log.Debug("terminal not released", "error", fault)
	}
}

// tellClient passes on a raider's notification that is no update: what belongs to one
// client to that one, an extension to all that are there, in the order of the updates.
func (p *process) tellClient(method string, params json.RawMessage) {
	if p.swallow.Load() || p.l.raider.ClientMethods == ClientMethodsRefuse {
		return
	}
	ours, err := p.forClient(params)
	if err != nil {
		return
	}
	if method == "elicitation/complete" {
		id := member(params, "elicitationId")
		to, ok := p.calls.whose("elicitation " + id)
		if !ok {
			return
		}
		p.calls.unbind("elicitation " + id)
		p.calls.open.Go(func() { p.notifyClient(to, method, ours) })
		return
	}
	if !strings.HasPrefix(method, "_") {
		return // unknown ones are ignored
	}
	body, err := rawjson.Set(json.RawMessage(`{}`), "method", quote(method))
	if err == nil && ours != nil {
		body, err = rawjson.Set(body, "params", ours)
	}
	if err != nil {
		return
	}
	prompt, _ := p.l.current(p.session)
	_ = p.l.out.append(p.session, subjects.EventExtension, prompt, body, nil) // fails only with the lane
}

// notifyClient writes a notification to one client, if it is there.
func (p *process) notifyClient(to subjects.Origin, method string, params json.RawMessage) {
	if p.l.out.flush() != nil {
		return
	}
	h := subjects.ClientHeader{Op: subjects.ClientNotify, Call: rand.Text(), Session: p.session, Method: method}
	err := p.l.w.b.Conn().PublishMsg(&nats.Msg{Subject: p.l.w.fleet.Client(to.FrontDoor, to.Attachment), Header: h.Header(), Data: params})
	if err != nil {
		p.l.w.log.Debug("notification not sent", "error", err)
	}
}
