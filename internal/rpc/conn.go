package rpc

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
)

// maxOpenRequests bounds what a peer can make us hold: one more request than
// this many unanswered ones gets CodeInternal at once.
const maxOpenRequests = 16384

// Handler gets what the peer sends. Its methods are called one at a time, on
// the reading goroutine, in the order of arrival: nothing else is read until
// they return, so they must not block. The texts they get are theirs to keep
// and not to change.
type Handler interface {
	// HandleRequest sees to it that r is answered exactly once, there or later,
	// from any goroutine. ctx is the connection's.
	HandleRequest(ctx context.Context, c *Conn, r *Request)
	// HandleNotification gets params nil when they were absent or null. A
	// $/cancel_request comes here only when its requestId is no open request
	// of this connection.
	HandleNotification(ctx context.Context, c *Conn, method string, params json.RawMessage)
}

// Options of a connection; the zero value is fine.
type Options struct {
	// MaxLineBytes is the longest line accepted, without its line feed; default
	// 32 MiB. A longer one is answered with CodeInvalidRequest and skipped.
	MaxLineBytes int
	// IDPrefix starts the ids of our own requests, strings that end in a
	// counter; default "rf-".
	IDPrefix string
	// SkipNoise, when set, gets every line that is no JSON object with
	// "jsonrpc":"2.0" or is too long, cut to 4 KiB, instead of the peer getting
	// an error. It is called like a Handler and must copy what it keeps.
	SkipNoise func(line []byte)
	// Logger gets what went wrong, never a frame; default none.
	Logger *slog.Logger
}

// Conn is one JSON-RPC connection, both client and server. Its methods are safe
// for many goroutines.
type Conn struct {
	in      *lineReader
	r       io.Reader
	out     *writer
	handler Handler
	opt     Options
	lastID  atomic.Uint64

	engine func() *engine // started by the first Run or Call

	closeOnce sync.Once
	closeErr  error
	closed    chan struct{} // Close was called
	doneOnce  sync.Once
	done      chan struct{} // nothing more will be read
	stopped   atomic.Bool   // the read loop hands nothing on any more
	work      sync.WaitGroup

	mu           sync.Mutex // guards the rest
	calls        map[string]*call
	ended        bool // no more calls
	closing      bool // no more goroutines
	requests     map[string][]*Request
	openRequests int
	runCtx       context.Context //nolint:containedctx // parent of the requests' contexts, set by Run
	cancelRun    context.CancelCauseFunc
}

// NewConn makes a connection from its two directions, which may be the same
// value. Nothing is read before Run. A nil handler answers every request with
// CodeMethodNotFound. A connection that was run or called on must be closed.
func NewConn(r io.Reader, w io.Writer, h Handler, o Options) *Conn {
	if o.MaxLineBytes <= 0 {
		o.MaxLineBytes = defaultMaxLineBytes
	}
	if o.IDPrefix == "" {
		o.IDPrefix = "rf-"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{
		in:       newLineReader(r, o.MaxLineBytes),
		r:        r,
		out:      newWriter(w),
		handler:  h,
		opt:      o,
		closed:   make(chan struct{}),
		done:     make(chan struct{}),
		calls:    make(map[string]*call),
		requests: make(map[string][]*Request),
	}
	c.engine = sync.OnceValue(func() *engine { return newEngine(c) })
	return c
}

// Done is closed when nothing more will be read: the input ended or failed,
// Run's context ended, or Close was called. Open calls have failed by then.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Notify sends a notification; params as in Call. It blocks while the peer does
// not read, until Close. The line goes out whole or the connection is broken.
func (c *Conn) Notify(method string, params any) error {
	frame, err := methodFrame(nil, method, params)
	if err != nil {
		return err
	}
	return c.out.write(context.Background(), frame)
}

// together is how many bytes of notifications NotifyAll writes at a time, about.
const together = 64 << 10

// NotifyAll sends notifications of one method, as Notify would one after the other, but
// with few writes. An error may have left some sent.
func (c *Conn) NotifyAll(method string, params []json.RawMessage) error {
	if len(params) == 1 {
		return c.Notify(method, params[0])
	}
	var batch []byte
	for i, p := range params {
		frame, err := methodFrame(nil, method, p)
		if err != nil {
			return err
		}
		batch = append(batch, frame...)
		if len(batch) >= together || i == len(params)-1 {
			if err := c.out.write(context.Background(), batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// Close ends the connection: answers already given go out if the peer takes
// them within a second, both directions are closed where they can be, requests
// lose their context, calls fail, Run returns. It does not wait for Run, so it
// may be called on the reading goroutine. Later calls return what the first did.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		c.mu.Lock()
		c.closing = true
		c.mu.Unlock()
		c.closeErr = c.out.close()
		close(c.closed)
		c.closeReader()
		if err := c.engine().rpc.Close(); err != nil {
			c.opt.Logger.Debug("engine closed twice", "error", err)
		}
		c.end(ErrClosed)
		finished := make(chan struct{})
		go func() {
			c.work.Wait()
			close(finished)
		}()
		await(finished)
	})
	return c.closeErr
}

// end fails the calls and, given a cause, takes the requests' contexts away.
func (c *Conn) end(cause error) {
	c.failCalls()
	c.doneOnce.Do(func() { close(c.done) })
	c.mu.Lock()
	cancel := c.cancelRun
	c.mu.Unlock()
	if cause != nil && cancel != nil {
		cancel(cause)
	}
}

func (c *Conn) closeReader() {
	if closer, ok := c.r.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			c.opt.Logger.Debug("closing the input", "error", err)
		}
	}
}

// spawn runs f on a goroutine that Close waits for; false after Close.
func (c *Conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.work.Go(f)
	return true
}
