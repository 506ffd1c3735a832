package frontdoor

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

const (
	// maxRequests bounds the requests of one connection that are worked on at once,
	// prompts aside; more are refused.
	maxRequests = 1024
	// maxSessions bounds the sessions that one connection holds.
	maxSessions = 4096
	// cancelledGrace bounds the wait for turns that were cancelled at the end of the
	// input: a worker that is lost must not keep the process for ever.
	cancelledGrace = time.Minute
)

// ConnOptions are one connection's own. The zero value is the default.
type ConnOptions struct {
	// GoneAtEOF: the end of the input means that the client has gone. Its turns get no
	// time and are not cancelled; OnDisconnect decides about its waiting prompts.
	GoneAtEOF bool
	// EOFGrace overrides Config.EOFGrace when it is not 0. Negative: for ever.
	EOFGrace time.Duration
	// Principal whose sessions the client may use. Default "local".
	Principal subjects.Principal
}

// peer is the client's end of a connection.
type peer interface {
	Run(ctx context.Context) error
	Call(ctx context.Context, method string, params any) (json.RawMessage, error)
	NotifyAll(method string, params []json.RawMessage) error
	Close() error
}

// conn is one client.
type conn struct {
	f         *FrontDoor
	rpc       peer
	log       *slog.Logger
	principal subjects.Principal
	can       atomic.Pointer[capabilities] // of the client
	ctx       context.Context              //nolint:containedctx // the connection's life
	work      sync.WaitGroup               // all goroutines of the connection

	mu          sync.Mutex // guards the rest
	initialized bool
	closing     bool // no new goroutines
	deaf        bool // the input has ended: the client answers nothing any more
	requests    int
	held        map[subjects.SessionID]*attachment
	left        map[subjects.SessionID]chan struct{} // gone of those that are still ending
	idle        chan struct{}                        // closed and renewed when a request or a turn has ended
}

// Serve serves one ACP client until its input ends and what was read is answered, ctx
// ends, or the connection breaks. It blocks, and all that it started has ended when it
// returns. It closes r and w if they can be closed. nil means the end of the input.
func (f *FrontDoor) Serve(ctx context.Context, r io.Reader, w io.Writer, o ConnOptions) error {
	if o.EOFGrace == 0 {
		o.EOFGrace = f.c.EOFGrace
	}
	if o.Principal == "" {
		o.Principal = subjects.LocalPrincipal
	}
	life, end := context.WithCancel(ctx)
	defer end()
	c := &conn{
		f: f, log: f.log, principal: o.Principal, ctx: life, idle: make(chan struct{}),
		held: map[subjects.SessionID]*attachment{}, left: map[subjects.SessionID]chan struct{}{},
	}
	c.can.Store(newCapabilities(nil))
	c.rpc = rpc.NewConn(r, w, c, rpc.Options{MaxLineBytes: f.c.MaxLineBytes, IDPrefix: "rf-", Logger: f.log})
	f.enter(c)
	defer f.leave(c)
	c.work.Go(func() { f.refresh(life) }) // what agents can: the client asks first

	err := c.rpc.Run(ctx)
	if err == nil && ctx.Err() == nil {
		c.mu.Lock()
		c.deaf = true
		c.mu.Unlock()
		c.each((*attachment).detach)
		c.finish(ctx, o)
	}
	dropped, cancelled := c.close(), c.cancelled()
	var bound []subjects.SessionMeta
	if f.c.OnDisconnect == OnDisconnectDrop {
		bound = c.bound()
	}
	end()
	if closeErr := c.rpc.Close(); closeErr != nil {
		c.log.Debug("connection not closed cleanly", "error", closeErr)
	}
	c.work.Wait()
	c.finishCancels(ctx, cancelled)
	if len(dropped) > 0 && ctx.Err() == nil {
		c.drop(ctx, dropped)
	}
	if ctx.Err() == nil {
		c.unbind(ctx, bound)
	}
	return err
}

// finish answers what was read before the input ended.
func (c *conn) finish(ctx context.Context, o ConnOptions) {
	var cut <-chan time.Time
	if o.GoneAtEOF || o.EOFGrace > 0 {
		grace := o.EOFGrace
		if o.GoneAtEOF {
			grace = time.Second // for requests; turns are not waited for
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		cut = timer.C
	}
	cancelled := false
	for {
		c.mu.Lock()
		requests, idle := c.requests, c.idle
		c.mu.Unlock()
		if requests == 0 && (o.GoneAtEOF || c.openTurns() == 0) {
			return
		}
		select {
		case <-idle:
		case <-cut:
			if o.GoneAtEOF || cancelled {
				return
			}
			cancelled = true
			timer := time.NewTimer(cancelledGrace)
			defer timer.Stop()
			cut = timer.C
			c.each((*attachment).cancelOwn) // not what others sent to the same sessions
		case <-ctx.Done():
			return
		}
	}
}

// close ends the intake and returns the turns that OnDisconnect wants dropped.
func (c *conn) close() []*turn {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	if c.f.c.OnDisconnect != OnDisconnectDrop {
		return nil
	}
	var out []*turn
	c.each(func(a *attachment) { out = append(out, a.waitingTurns()...) })
	return out
}

// HandleRequest takes a request in the order of arrival; it does not block.
func (c *conn) HandleRequest(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
	c.mu.Lock()
	initialized := c.initialized
	c.mu.Unlock()
	if !initialized && r.Method != "initialize" {
		answerError(c.log, r, &rpc.Error{Code: rpc.CodeInvalidRequest, Message: "invalid request: initialize comes first"})
		return
	}
	switch r.Method {
	case "initialize":
		c.initialize(r)
	case "session/new":
		c.serve(r, c.newSession) //nolint:contextcheck // ends with the connection, not with the reading
	case "session/load":
		c.serve(r, c.loadSession) //nolint:contextcheck // as above
	case "session/close":
		c.serve(r, c.closeSession) //nolint:contextcheck // as above
	case "session/resume":
		c.serve(r, c.resumeSession) //nolint:contextcheck // as above
	case "session/list":
		c.serve(r, c.listSessions) //nolint:contextcheck // as above
	case "session/delete":
		c.serve(r, c.deleteSession) //nolint:contextcheck // as above
	case subjects.MethodSetMode, subjects.MethodSetOption:
		c.serve(r, c.setChoice) //nolint:contextcheck // as above
	case "session/prompt":
		// Entered at once: a cancel that comes next must find it.
		if err := c.prompt(r); err != nil { //nolint:contextcheck // as above
			answerError(c.log, r, c.f.fault(err))
		}
	case "session/cancel":
		c.cancelSession(r.Params)
		answer(c.log, r, struct{}{})
	default:
		answerError(c.log, r, &rpc.Error{Code: rpc.CodeMethodNotFound, Message: "method not found: " + r.Method})
	}
}

// HandleNotification implements rpc.Handler. Unknown ones are ignored.
func (c *conn) HandleNotification(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
	c.mu.Lock()
	initialized := c.initialized
	c.mu.Unlock()
	if initialized && method == "session/cancel" {
		c.cancelSession(params)
	}
}

// serve works on a request on a goroutine of its own. do answers it, or returns why not.
func (c *conn) serve(r *rpc.Request, do func(context.Context, *rpc.Request) error) {
	ok := c.serveOne(func() {
		ctx, cancel := context.WithCancelCause(c.ctx)
		defer cancel(nil)
		stop := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })
		defer stop()
		if err := do(ctx, r); err != nil && c.ctx.Err() == nil {
			if peerCancelled(r) {
				err = &rpc.Error{Code: rpc.CodeRequestCancelled, Message: "request cancelled"}
			}
			answerError(c.log, r, c.f.fault(err, "method", r.Method))
		}
	})
	if !ok {
		answerError(c.log, r, &rpc.Error{Code: rpc.CodeInternal, Message: "too many requests are open"})
	}
}

// serveOne runs do on a goroutine of its own, for something that the peer asked for; false
// when it has asked for too much, or the connection ends.
func (c *conn) serveOne(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || c.requests >= maxRequests {
		return false
	}
	c.requests++
	c.work.Go(func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.requests--
			c.wakeLocked()
		}()
		do()
	})
	return true
}

// spawn runs f on a goroutine that Serve waits for; false when the connection ends.
func (c *conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.work.Go(f)
	return true
}

// wakeLocked tells finish that something has ended.
func (c *conn) wakeLocked() {
	close(c.idle)
	c.idle = make(chan struct{})
}

func (c *conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

// each calls do for every attachment.
func (c *conn) each(do func(*attachment)) {
	c.mu.Lock()
	all := make([]*attachment, 0, len(c.held))
	for _, a := range c.held {
		all = append(all, a)
	}
	c.mu.Unlock()
	for _, a := range all {
		do(a)
	}
}

func (c *conn) openTurns() int {
	n := 0
	c.each(func(a *attachment) { n += a.openTurns() })
	return n
}

func (c *conn) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}
