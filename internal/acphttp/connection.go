package acphttp

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// connection is a client over HTTP.
type connection struct {
	h    *Handler
	id   string
	in   *io.PipeWriter
	ctx  context.Context //nolint:containedctx // the connection's life
	stop context.CancelFunc

	feeding sync.Mutex // held while a message is handed on

	mu      sync.Mutex         // guards the rest
	streams map[string]*stream // by session; "" is the connection's own
	routes  map[string]string  // of an open request of the client's: the session whose stream gets its answer
	asked   map[string]string  // of an open request of ours: the session whose stream had it
	first   chan []byte        // gets the answer to initialize, once; nil after it
	initID  string
	uses    int
	idle    *time.Timer
}

var errEnded = errors.New("the connection has ended")

// begin starts a connection.
func (h *Handler) begin(initID string) (*connection, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	in, out := io.Pipe()
	c := &connection{
		h: h, id: newID(), in: out, streams: map[string]*stream{}, routes: map[string]string{}, asked: map[string]string{},
		first: make(chan []byte, 1), initID: initID,
	}
	c.ctx, c.stop = context.WithCancel(h.life)
	c.idle = time.AfterFunc(h.o.Idle, c.end)
	h.mu.Lock()
	h.conns[c.id] = c
	h.mu.Unlock()
	go func() {
		defer h.leave()
		defer c.end()
		write := &lines{f: c.send}
		if err := h.o.Serve(h.life, in, write); err != nil && c.ctx.Err() == nil {
			h.o.Logger.Debug("connection ended", "error", err)
		}
		_ = in.Close() // never fails
	}()
	return c, nil
}

// end forgets the connection: its streams end, and whoever serves it comes to the end of
// its input, as where a client hangs up.
func (c *connection) end() {
	c.stop()
	_ = c.in.Close() // never fails
	c.idle.Stop()
	c.h.mu.Lock()
	delete(c.h.conns, c.id)
	c.h.mu.Unlock()
}

func (h *Handler) find(id string) *connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[id]
}

// use keeps the connection from being idle until done is called.
func (c *connection) use() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
	c.idle.Stop()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.uses--; c.uses == 0 && c.ctx.Err() == nil {
			c.idle.Reset(c.h.o.Idle)
		}
	}
}

// take hands on a message of the client's.
func (c *connection) take(body []byte, m message) error {
	c.mu.Lock()
	switch {
	case m.method != "" && m.id != "":
		c.routes[m.id] = c.routeLocked(m)
	case m.method == "" && m.id != "":
		delete(c.asked, m.id)
	}
	c.mu.Unlock()
	c.feeding.Lock()
	defer c.feeding.Unlock()
	if _, err := c.in.Write(line(body)); err != nil {
		return errEnded
	}
	return nil
}

// routeLocked is the session whose stream gets the answer to a request. What replays or
// runs is answered behind its updates; the rest where somebody reads.
func (c *connection) routeLocked(m message) string {
	switch m.method {
	case "session/prompt", "session/load", "session/resume":
		return m.session
	}
	if s := c.streams[m.session]; s != nil && s.isOpen() {
		return m.session
	}
	return ""
}

// send puts a message of ours on its stream. It waits while that is full.
func (c *connection) send(raw []byte) error {
	m := look(raw)
	c.mu.Lock()
	session := m.session
	switch {
	case m.method == "$/cancel_request":
		session = c.asked[m.request] // behind what it takes back
		delete(c.asked, m.request)
	case m.method != "" && m.id != "":
		c.asked[m.id] = session
	case m.method == "" && c.first != nil && m.id == c.initID:
		first := c.first
		c.first = nil
		delete(c.routes, m.id)
		c.mu.Unlock()
		first <- append([]byte(nil), raw...)
		return nil
	case m.method == "":
		session = c.routes[m.id]
		delete(c.routes, m.id)
	}
	s := c.streamLocked(session)
	c.mu.Unlock()
	return s.push(c.ctx, append([]byte(nil), raw...))
}

func (c *connection) streamLocked(session string) *stream {
	s := c.streams[session]
	if s == nil {
		s = newStream(c.h.o.StreamBytes)
		c.streams[session] = s
	}
	return s
}

// stream is a queue of messages that one reader at a time takes.
type stream struct {
	limit int
	come  chan struct{} // has an element when something may be there
	space chan struct{} // has one when something was taken

	mu    sync.Mutex // guards the rest
	queue [][]byte
	bytes int
	open  bool
}

func newStream(limit int) *stream {
	return &stream{limit: limit, come: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

func (s *stream) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// acquire makes the caller the reader; false when there is one.
func (s *stream) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		return false
	}
	s.open = true
	return true
}

func (s *stream) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
}

// push appends a message. It waits while there is as much as the stream keeps.
func (s *stream) push(ctx context.Context, message []byte) error {
	for {
		s.mu.Lock()
		if s.bytes < s.limit {
			s.queue = append(s.queue, message)
			s.bytes += len(message)
			s.mu.Unlock()
			signal(s.come)
			return nil
		}
		s.mu.Unlock()
		select {
		case <-s.space:
		case <-ctx.Done():
			return errEnded
		}
	}
}

// next is the oldest message, which stays until it is dropped; nil: there is none.
func (s *stream) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

// drop forgets the oldest message.
func (s *stream) drop() {
	s.mu.Lock()
	s.bytes -= len(s.queue[0])
	s.queue[0] = nil
	s.queue = s.queue[1:]
	s.mu.Unlock()
	signal(s.space)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
