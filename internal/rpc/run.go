package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"raiderfleet/internal/rawjson"
)

// Run reads and handles messages until the input ends or Close is called (nil),
// reading fails, or ctx ends (its error); it is to be called once. On return all
// open calls have failed with ErrClosed. After the end of the input the peer
// can still be written to, and its open requests answered, until Close; after
// anything else the requests' contexts have ended.
//
// When ctx ends, the input is closed if it is an io.Closer. Input that stays
// blocked even so is left behind after a second, and nothing it yields later is
// handled.
func (c *Conn) Run(ctx context.Context) error {
	runCtx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		cancel(ErrClosed)
		return nil
	}
	c.runCtx, c.cancelRun = runCtx, cancel
	c.mu.Unlock()

	var readErr error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		readErr = c.readLoop(runCtx)
	}()
	select {
	case <-finished:
	case <-runCtx.Done():
	case <-c.closed:
	}
	c.stopped.Store(true)
	select {
	case <-finished:
	default:
		c.closeReader()
		await(finished)
	}
	switch {
	case ctx.Err() != nil:
		c.end(ErrClosed)
		return ctx.Err()
	case c.isClosed():
		c.end(ErrClosed)
		return nil
	case readErr != nil:
		c.end(ErrClosed)
		return readErr
	}
	c.end(nil)
	return nil
}

func (c *Conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// readLoop handles line after line; nil at the end of the input.
func (c *Conn) readLoop(ctx context.Context) error {
	for {
		c.out.waitRoom(ctx.Done())
		line, owned, err := c.in.next()
		if c.stopped.Load() {
			return nil
		}
		switch {
		case errors.Is(err, errLineTooLong):
			c.refuse(message{noise: true, reply: &Error{
				Code:    CodeInvalidRequest,
				Message: fmt.Sprintf("invalid request: a line is longer than %d bytes", c.opt.MaxLineBytes),
			}}, line)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("rpc: reading: %w", err)
		default:
			c.handleLine(ctx, line, owned)
		}
	}
}

func (c *Conn) handleLine(ctx context.Context, line []byte, owned bool) {
	m := parse(line)
	keep := func(raw json.RawMessage) json.RawMessage {
		if owned {
			return raw
		}
		return bytes.Clone(raw)
	}
	switch m.kind {
	case kindBlank:
	case kindIgnored:
		c.opt.Logger.Debug("notification with scalar params ignored")
	case kindInvalid:
		c.refuse(m, line)
	case kindNotification:
		c.handleNotification(ctx, m.method, keep(m.params))
	case kindRequest:
		r := &Request{Method: m.method, Params: keep(m.params), id: bytes.Clone(m.id), conn: c}
		r.ctx, r.cancel = context.WithCancelCause(ctx)
		c.engine().deliverRequest(r)
	case kindResponse:
		m.result, m.fault = keep(m.result), keep(m.fault)
		c.handleResponse(m)
	}
}

// refuse answers a line that is no message, or gives it to SkipNoise.
func (c *Conn) refuse(m message, line []byte) {
	if m.noise && c.opt.SkipNoise != nil {
		c.opt.SkipNoise(line[:min(len(line), keptLineBytes)])
		return
	}
	frame, err := errorFrame(m.id, m.reply)
	if err != nil {
		return
	}
	if c.out.crowded() {
		err = c.out.write(context.Background(), frame)
	} else {
		err = c.out.enqueue(frame)
	}
	if err != nil {
		c.opt.Logger.Debug("answer to an invalid line not sent", "error", err)
	}
}

func (c *Conn) handleNotification(ctx context.Context, method string, params json.RawMessage) {
	if method == methodCancel {
		if id, ok := rawjson.Get(params, "requestId"); ok && c.cancelRequests(id) {
			return
		}
	}
	if c.handler != nil {
		c.handler.HandleNotification(ctx, c, method, params)
	}
}

// handleRequest is called by the engine.
func (c *Conn) handleRequest(r *Request) {
	var err error
	switch {
	case !c.openRequest(r):
		err = r.ReplyError(&Error{Code: CodeInternal, Message: "too many requests are open"})
	case c.handler == nil:
		err = r.ReplyError(&Error{Code: CodeMethodNotFound, Message: "method not found: " + r.Method})
	default:
		c.handler.HandleRequest(c.runCtx, c, r)
	}
	if err != nil {
		c.opt.Logger.Debug("request not answered", "error", err)
	}
}

func (c *Conn) handleResponse(m message) {
	o := outcome{result: m.result}
	if o.result == nil {
		o.result = json.RawMessage("null")
	}
	if m.fault != nil && string(m.fault) != "null" {
		o = outcome{fault: parseError(m.fault)}
	}
	// All our ids are strings; a number or null is none of them.
	if !isString(m.id) || !c.answerCall(rawjson.Unquote(m.id), o) {
		c.opt.Logger.Debug("response to no open request ignored")
	}
}
