package rpc

import (
	"context"
	"encoding/json"
	"sync/atomic"
)

// Request is a request of the peer. It is to be answered exactly once, from any
// goroutine, with Reply or ReplyError.
type Request struct {
	Method string
	Params json.RawMessage // nil when absent or null, else an object or array

	conn     *Conn
	id       json.RawMessage
	ctx      context.Context //nolint:containedctx // a request's own lifetime, as in net/http
	cancel   context.CancelCauseFunc
	answered atomic.Bool
}

// Context ends when the peer cancels this request (cause ErrPeerCancelled), when
// the connection ends other than by the end of its input (cause ErrClosed), and
// when the request has been answered.
func (r *Request) Context() context.Context { return r.ctx }

// ID is the exact text of the id the peer sent.
func (r *Request) ID() json.RawMessage { return r.id }

// Reply answers with a result: a json.RawMessage goes out as it is, nil as null.
// It does not wait for the peer to read. ErrAnswered and ErrClosed say that
// nothing was sent; a result that can't be encoded leaves the request open.
func (r *Request) Reply(result any) error {
	frame, err := resultFrame(r.id, result)
	if err != nil {
		return err
	}
	return r.answer(frame)
}

// ReplyError answers with an error, else like Reply. nil becomes CodeInternal.
func (r *Request) ReplyError(e *Error) error {
	if e == nil {
		e = &Error{Code: CodeInternal, Message: "internal error"}
	}
	frame, err := errorFrame(r.id, e)
	if err != nil {
		return err
	}
	return r.answer(frame)
}

func (r *Request) answer(frame []byte) error {
	if r.answered.Swap(true) {
		return ErrAnswered
	}
	r.conn.dropRequest(r)
	err := r.conn.out.enqueue(frame)
	r.cancel(context.Canceled)
	return err
}

// openRequest enters a request of the peer; false when it has too many open.
func (c *Conn) openRequest(r *Request) bool {
	key := idKey(r.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.openRequests >= maxOpenRequests {
		return false
	}
	c.openRequests++
	c.requests[key] = append(c.requests[key], r)
	return true
}

func (c *Conn) dropRequest(r *Request) {
	key := idKey(r.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.requests[key]
	for i, other := range open {
		if other != r {
			continue
		}
		c.openRequests--
		if len(open) == 1 {
			delete(c.requests, key)
			return
		}
		// A new slice: cancelRequests may be reading the old one.
		kept := make([]*Request, 0, len(open)-1)
		c.requests[key] = append(append(kept, open[:i]...), open[i+1:]...)
		return
	}
}

// cancelRequests cancels the open requests with that id; false when none is.
func (c *Conn) cancelRequests(id json.RawMessage) bool {
	c.mu.Lock()
	open := c.requests[idKey(id)]
	c.mu.Unlock()
	for _, r := range open {
		r.cancel(ErrPeerCancelled)
	}
	return len(open) > 0
}
