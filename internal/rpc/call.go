package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/sourcegraph/jsonrpc2"
)

const methodCancel = "$/cancel_request"

// call is one request of ours that waits for its response.
type call struct {
	id    string
	frame []byte
	// answered is called when the response has been read; nil for nothing.
	answered func()

	sent    chan struct{} // closed when waiter and sendErr are set
	waiter  jsonrpc2.Waiter
	sendErr error

	// Guarded by Conn.mu until the call has left Conn.calls.
	written bool // the engine knows it: only now a response may be passed on
	outcome *outcome
}

// outcome is how a call ended; one of the three is set.
type outcome struct {
	result json.RawMessage
	fault  *Error
	err    error
}

// Call sends a request and waits for its response. A json.RawMessage as params
// goes out as it is, nil leaves params out. The result is the exact text the
// peer sent.
//
// The error is an *Error when the peer answered one, ErrClosed when the
// connection ended first, ctx.Err() when ctx was done first; then the peer gets
// $/cancel_request (if it got the request) and its late response is ignored.
// Call does not outlast ctx even while the peer reads nothing. It is safe for
// many goroutines, but must not be called on the reading goroutine.
func (c *Conn) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	return c.CallMarked(ctx, method, params, nil)
}

// CallMarked is Call that calls answered, if it is not nil, on the reading goroutine when the
// response has been read, before anything behind it is: what the peer sent before its
// response is told from what it sent after it. It is not called when there is none.
func (c *Conn) CallMarked(ctx context.Context, method string, params any, answered func()) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id := c.opt.IDPrefix + strconv.FormatUint(c.lastID.Add(1), 10)
	quoted, err := encode(id)
	if err != nil {
		return nil, err
	}
	frame, err := methodFrame(quoted, method, params)
	if err != nil {
		return nil, err
	}
	cl := &call{id: id, frame: frame, answered: answered, sent: make(chan struct{})}
	if !c.openCall(cl) {
		return nil, ErrClosed
	}
	// A goroutine of its own, since a write that has begun can't be called off.
	if !c.spawn(func() {
		cl.waiter, cl.sendErr = c.engine().send(ctx, cl)
		close(cl.sent)
	}) {
		c.forget(cl)
		return nil, ErrClosed
	}
	select {
	case <-cl.sent:
		if cl.sendErr != nil {
			return c.unsent(cl)
		}
		err = cl.waiter.Wait(ctx, nil)
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.done:
		err = ErrClosed
	}
	return c.finish(ctx, cl, err)
}

// finish gives the outcome of a call, or gives the call up.
func (c *Conn) finish(ctx context.Context, cl *call, err error) (json.RawMessage, error) {
	if o := c.forget(cl); o != nil {
		switch {
		case o.err != nil:
			return nil, o.err
		case o.fault != nil:
			return nil, o.fault
		}
		return o.result, nil
	}
	if err == nil || ctx.Err() == nil {
		return nil, ErrClosed
	}
	c.spawn(func() { c.withdraw(cl) })
	return nil, ctx.Err()
}

// withdraw tells the peer that nobody waits for the call any more.
func (c *Conn) withdraw(cl *call) {
	<-cl.sent
	if cl.sendErr != nil {
		return
	}
	c.engine().deliverResponse(cl.id)
	id, err := encode(cl.id)
	if err != nil {
		return
	}
	frame, err := methodFrame(nil, methodCancel, json.RawMessage(`{"requestId":`+string(id)+`}`))
	if err != nil {
		return
	}
	if err := c.out.write(context.Background(), frame); err != nil {
		c.opt.Logger.Debug("cancel not sent", "error", err)
	}
}

// unsent ends a call whose request did not go out.
func (c *Conn) unsent(cl *call) (json.RawMessage, error) {
	c.forget(cl)
	switch {
	case errors.Is(cl.sendErr, jsonrpc2.ErrClosed), errors.Is(cl.sendErr, ErrClosed):
		return nil, ErrClosed
	case errors.Is(cl.sendErr, context.Canceled), errors.Is(cl.sendErr, context.DeadlineExceeded):
		return nil, cl.sendErr
	}
	return nil, fmt.Errorf("rpc: sending a request: %w", cl.sendErr)
}

func (c *Conn) openCall(cl *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.calls[cl.id] = cl
	return true
}

// markWritten reports whether the call is still wanted and from then on lets a
// response through to the engine, which now has it in its table.
func (c *Conn) markWritten(cl *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[cl.id] != cl {
		return false
	}
	cl.written = true
	return true
}

// forget takes a call out of the table and gives its outcome, nil for none.
func (c *Conn) forget(cl *call) *outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[cl.id] == cl {
		delete(c.calls, cl.id)
	}
	return cl.outcome
}

// answerCall ends the open call with that id and reports whether there was one.
func (c *Conn) answerCall(id string, o outcome) bool {
	c.mu.Lock()
	cl := c.calls[id]
	if cl == nil || !cl.written {
		c.mu.Unlock()
		return false
	}
	delete(c.calls, id)
	cl.outcome = &o
	c.mu.Unlock()
	if cl.answered != nil {
		cl.answered()
	}
	c.engine().deliverResponse(id)
	return true
}

// failCalls ends all open calls; no new ones can be opened.
func (c *Conn) failCalls() {
	c.mu.Lock()
	c.ended = true
	var written []string
	for id, cl := range c.calls {
		cl.outcome = &outcome{err: ErrClosed}
		if cl.written {
			written = append(written, id)
		}
	}
	clear(c.calls)
	c.mu.Unlock()
	for _, id := range written {
		c.engine().deliverResponse(id)
	}
}
