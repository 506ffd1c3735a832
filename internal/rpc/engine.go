package rpc

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/sourcegraph/jsonrpc2"
)

// engine is the jsonrpc2.Conn that matches requests and responses, and the
// stream under it.
//
// Inwards it gets one envelope at a time, and deliver returns only when it has
// been dealt with: that keeps the order of arrival between what passes through
// it and what does not. An envelope has an id of ours and no content.
// Outwards it is told to send only calls; the frame that goes out for one is
// the call's own. A cancelled call would stay in its table for ever, so it
// gets an envelope that answers it.
type engine struct {
	conn     *Conn
	rpc      *jsonrpc2.Conn
	incoming chan delivery
	handled  chan struct{}
	closed   <-chan struct{}

	turn sync.Mutex // held for one delivery

	sending *call // guarded by the writer's lock

	current *delivery // touched by jsonrpc2's reading goroutine only
}

// delivery is an envelope, with the request that it stands for, if any.
type delivery struct {
	envelope string
	request  *Request
}

func newEngine(c *Conn) *engine {
	e := &engine{conn: c, incoming: make(chan delivery), handled: make(chan struct{}), closed: c.closed}
	e.rpc = jsonrpc2.NewConn(context.Background(), e, e, jsonrpc2.SetLogger(silent{}))
	return e
}

// silent keeps jsonrpc2 from writing to stderr; all that it would say is said
// by us or cannot happen.
type silent struct{}

func (silent) Printf(string, ...any) {}

// deliver hands an envelope to jsonrpc2 and returns when it has been handled,
// or the connection is closed.
func (e *engine) deliver(d delivery) {
	e.turn.Lock()
	defer e.turn.Unlock()
	select {
	case e.incoming <- d:
	case <-e.closed:
		return
	}
	select {
	case <-e.handled:
	case <-e.closed:
	}
}

func (e *engine) deliverRequest(r *Request) {
	e.deliver(delivery{`{"id":0,"method":"r"}`, r})
}

func (e *engine) deliverResponse(id string) {
	quoted, err := encode(id)
	if err != nil {
		return
	}
	e.deliver(delivery{`{"id":` + string(quoted) + `,"result":0}`, nil})
}

// ReadObject implements jsonrpc2.ObjectStream.
func (e *engine) ReadObject(v any) error {
	if e.current != nil {
		e.current = nil
		select {
		case e.handled <- struct{}{}:
		case <-e.closed:
			return io.EOF
		}
	}
	select {
	case d := <-e.incoming:
		e.current = &d
		return json.Unmarshal([]byte(d.envelope), v)
	case <-e.closed:
		return io.EOF
	}
}

// Handle implements jsonrpc2.Handler.
func (e *engine) Handle(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {
	e.conn.handleRequest(e.current.request)
}

// WriteObject implements jsonrpc2.ObjectStream: obj is the request of the call
// that is being sent.
func (e *engine) WriteObject(any) error {
	if !e.conn.markWritten(e.sending) {
		return ErrClosed
	}
	return e.conn.out.writeLocked(e.sending.frame)
}

// Close implements jsonrpc2.ObjectStream. The streams are closed by Conn.
func (e *engine) Close() error { return nil }

// send writes a call's request and enters it in jsonrpc2's table.
func (e *engine) send(ctx context.Context, cl *call) (jsonrpc2.Waiter, error) {
	if err := e.conn.out.acquire(ctx); err != nil {
		return jsonrpc2.Waiter{}, err
	}
	defer e.conn.out.release()
	e.sending = cl
	defer func() { e.sending = nil }()
	return e.rpc.DispatchCall(ctx, "c", nil, jsonrpc2.PickID(jsonrpc2.ID{Str: cl.id, IsString: true}))
}
