package frontdoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

const (
	// maxCapabilities bounds what of a client's capabilities goes with its prompts, in bytes.
	maxCapabilities = 16 << 10
	// maxClientCalls bounds the requests of raiders that one client's session works on at once.
	maxClientCalls = 256
	// workingEvery is how often a worker is told that its request is still worked on.
	workingEvery = 5 * time.Second
	// workingTimeout is how long the worker has to say that it still waits. Its silence
	// says nothing; that nobody listens any more takes the request back.
	workingTimeout = 4 * time.Second
	// shownFor bounds the wait for what the client is to see before a raider's request, and
	// shownEvery is how often is looked.
	shownFor   = 2 * time.Second
	shownEvery = 2 * time.Millisecond
)

// capabilities are what a client said it can do.
type capabilities struct {
	raw json.RawMessage // one line; nil for nothing

	mu     sync.Mutex // guards unable
	unable map[string]bool
}

// newCapabilities takes the params of initialize.
func newCapabilities(params json.RawMessage) *capabilities {
	c := &capabilities{unable: map[string]bool{}}
	raw, ok := rawjson.Get(params, "clientCapabilities")
	if !ok || !rawjson.IsObject(raw) {
		return c
	}
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return c
	}
	c.raw = line.Bytes()
	if len(c.raw) > maxCapabilities {
		// What nobody knows goes first.
		if short, err := rawjson.Delete(c.raw, "_meta"); err == nil && len(short) <= maxCapabilities {
			c.raw = short
		} else {
			c.raw = nil
		}
	}
	return c
}

// able says whether the client may be asked for a method: it said that it can, or nobody
// knows, and it has not answered 'method not found' to it.
func (c *capabilities) able(method string, params json.RawMessage) bool {
	c.mu.Lock()
	unable := c.unable[method]
	c.mu.Unlock()
	if unable {
		return false
	}
	var said struct {
		FS struct {
			Read  bool `json:"readTextFile"`
			Write bool `json:"writeTextFile"`
		} `json:"fs"`
		Terminal    bool                       `json:"terminal"`
		Elicitation map[string]json.RawMessage `json:"elicitation"`
	}
	if len(c.raw) > 0 && json.Unmarshal(c.raw, &said) != nil {
		return false
	}
	switch {
	case method == "fs/read_text_file":
		return said.FS.Read
	case method == "fs/write_text_file":
		return said.FS.Write
	case strings.HasPrefix(method, "terminal/"):
		return said.Terminal
	case method == "elicitation/create":
		mode, _ := rawjson.Get(params, "mode")
		var name string
		if json.Unmarshal(mode, &name) != nil {
			return false
		}
		can, ok := said.Elicitation[name]
		return ok && string(can) != "null"
	}
	return true
}

// cannot notes that the client does not know a method.
func (c *capabilities) cannot(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unable) < maxClientCalls { // a raider may make up methods
		c.unable[method] = true
	}
}

// fromRaider takes what a worker wants of the client. It does not block.
func (a *attachment) fromRaider(m *nats.Msg) {
	h, err := subjects.ParseClientHeader(m.Header)
	if err != nil || h.Session != a.session {
		a.log.Warn("a raider's request that is none", "error", err)
		a.reply(m, subjects.ClientGone, nil)
		return
	}
	if h.Op == subjects.ClientOpened {
		return // who opens listens too
	}
	if h.Op == subjects.ClientCancel {
		a.mu.Lock()
		giveUp := a.calls[h.Call]
		a.mu.Unlock()
		if giveUp != nil {
			giveUp()
		}
		return
	}
	ctx, cancel := context.WithCancel(a.ctx)
	a.mu.Lock()
	known, full, gone := a.calls[h.Call] != nil, len(a.calls) >= maxClientCalls, a.detached
	if !known && !full && !gone {
		a.calls[h.Call] = cancel
	}
	a.mu.Unlock()
	end := func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.calls, h.Call)
	}
	switch {
	case known:
		cancel()
		return
	case gone:
		cancel()
		a.reply(m, subjects.ClientGone, nil)
		return
	case full:
		cancel()
		a.reply(m, subjects.ClientFault, object(rpc.Error{Code: rpc.CodeInternal, Message: "the client works on too many requests"}))
		return
	}
	if !a.c.spawn(func() { defer end(); a.pass(ctx, m, h) }) {
		end()
		a.reply(m, subjects.ClientGone, nil)
	}
}

// pass gives the client a raider's request, or notification, and the worker its answer.
func (a *attachment) pass(ctx context.Context, m *nats.Msg, h subjects.ClientHeader) {
	life, stop := context.WithCancel(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beating sync.WaitGroup
	defer beating.Wait()
	defer stop()
	if h.Op == subjects.ClientCall {
		// From now on until it is answered: a large file takes a while on its way in and out,
		// too, and the worker takes silence for a front door that has gone.
		beating.Go(func() { a.beat(life, m, cancel) })
	}
	params, err := a.f.b.Body(ctx, h.Payload, m.Data)
	if err != nil {
		a.log.Warn("a raider's request can't be read", "error", err)
		a.reply(m, subjects.ClientFault, object(rpc.Error{Code: rpc.CodeInternal, Message: "the request's content is missing"}))
		return
	}
	if !a.c.can.Load().able(h.Method, params) {
		a.reply(m, subjects.ClientUnable, nil)
		return
	}
	a.awaitShown(ctx, h.LastEpoch, h.LastN)
	if h.Op == subjects.ClientNotify {
		state := subjects.ClientDone
		if err := a.c.rpc.NotifyAll(h.Method, []json.RawMessage{json.RawMessage(params)}); err != nil {
			state = subjects.ClientGone
		}
		a.reply(m, state, nil)
		return
	}
	result, err := a.c.rpc.Call(ctx, h.Method, json.RawMessage(params))
	gone := ctx.Err() != nil
	var fault *rpc.Error
	switch {
	case err == nil:
		a.done(m, h, result)
	case errors.As(err, &fault):
		if fault.Code == rpc.CodeMethodNotFound {
			a.c.can.Load().cannot(h.Method)
			a.reply(m, subjects.ClientUnable, nil)
			return
		}
		a.reply(m, subjects.ClientFault, object(fault))
	case gone && a.ctx.Err() == nil:
		// Taken back: nobody waits for an answer.
	default:
		a.reply(m, subjects.ClientGone, nil)
	}
}

// beat tells the worker that the client has the request, until ctx ends. give is called
// when nobody waits for the answer any more.
func (a *attachment) beat(ctx context.Context, m *nats.Msg, give func()) {
	tick := time.NewTicker(workingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		working := &nats.Msg{Subject: m.Reply, Header: nats.Header{}}
		working.Header.Set(subjects.HeaderState, string(subjects.ClientWorking))
		bound, cancel := context.WithTimeout(ctx, workingTimeout)
		_, err := a.f.b.Conn().RequestMsgWithContext(bound, working)
		cancel()
		if errors.Is(err, nats.ErrNoResponders) {
			give()
			return
		}
	}
}

// done answers with the client's result.
func (a *attachment) done(m *nats.Msg, h subjects.ClientHeader, result json.RawMessage) {
	if len(result) <= a.f.b.MaxInline() {
		a.reply(m, subjects.ClientDone, result)
		return
	}
	ref := "client." + h.Call
	if err := a.f.b.PutPayload(a.ctx, ref, result); err != nil {
		a.log.Warn("a client's answer can't be stored", "error", err)
		a.reply(m, subjects.ClientFault, object(rpc.Error{Code: rpc.CodeInternal, Message: "the client's answer is too large to be passed on"}))
		return
	}
	answer := &nats.Msg{Header: nats.Header{}}
	answer.Header.Set(subjects.HeaderState, string(subjects.ClientDone))
	answer.Header.Set(subjects.HeaderPayload, ref)
	if err := m.RespondMsg(answer); err != nil {
		a.log.Debug("a client's answer not sent", "error", err)
	}
}

// reply answers a worker. One that is lost is silence, which the worker bounds.
func (a *attachment) reply(m *nats.Msg, state subjects.ClientState, data []byte) {
	if m.Reply == "" {
		return
	}
	answer := &nats.Msg{Header: nats.Header{}, Data: data}
	answer.Header.Set(subjects.HeaderState, string(state))
	if err := m.RespondMsg(answer); err != nil {
		a.log.Debug("a client's answer not sent", "error", err)
	}
}

// awaitShown waits until the client has been shown the session's events up to the one that
// is named: what a raider asks for after an update comes after it. It gives up after a
// moment: the client may read slowly, or the event be lost with its worker.
func (a *attachment) awaitShown(ctx context.Context, epoch, n uint64) {
	if epoch == 0 {
		return
	}
	give := time.NewTimer(shownFor)
	defer give.Stop()
	look := time.NewTicker(shownEvery)
	defer look.Stop()
	for {
		if at := a.follow.shown.Load(); at != nil && (at.epoch > epoch || at.epoch == epoch && at.n >= n) {
			return
		}
		select {
		case <-look.C:
		case <-give.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// toClient writes a raider's extension notification.
func (w *follower) toClient(body []byte) {
	if w.load != nil {
		return // it was for those who were there
	}
	var m struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(body, &m) != nil || m.Method == "" {
		return
	}
	params, _ := rawjson.Get(body, "params") // as it was written
	if err := w.a.c.rpc.NotifyAll(m.Method, []json.RawMessage{params}); err != nil {
		w.a.log.Debug("notification not written", "error", err)
	}
}
