package rpc

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxQueuedAnswers is how many answers wait for a slow peer before the
	// reading goroutine, which makes one for each bad line, waits as well.
	maxQueuedAnswers = 1024
	// maxQueuedBytes is how many bytes of answers wait for a slow peer before nothing more
	// is read from it.
	maxQueuedBytes = 32 << 20
	// closeGrace bounds how long Close waits for queued answers and for
	// goroutines that are stuck in a stream.
	closeGrace = time.Second
)

// writer puts whole frames on the stream in the order they were given.
//
// Answers are queued and never block, so that they may be given on the reading
// goroutine: were it to wait for a peer that itself waits to be read, both
// would wait for ever. Everything else is written by its caller, after what is
// queued.
type writer struct {
	w      io.Writer
	lock   chan struct{} // capacity 1, held while writing
	closed chan struct{}

	mu      sync.Mutex // guards the rest
	queue   [][]byte
	bytes   int           // of the frames in queue and of those being written
	room    chan struct{} // closed and replaced when bytes has shrunk
	flushed chan struct{} // not nil while a flush goroutine runs, closed by it
	closing bool
	err     error // the first write error; nothing is written after it
}

func newWriter(w io.Writer) *writer {
	return &writer{w: w, room: make(chan struct{}), lock: make(chan struct{}, 1), closed: make(chan struct{})}
}

// acquire takes the right to write; release gives it back.
func (w *writer) acquire(ctx context.Context) error {
	select {
	case <-w.closed:
		return ErrClosed
	default:
	}
	select {
	case w.lock <- struct{}{}:
		return nil
	case <-w.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writer) release() { <-w.lock }

// write writes a frame. ctx bounds only the wait for the stream to be free.
func (w *writer) write(ctx context.Context, frame []byte) error {
	if err := w.acquire(ctx); err != nil {
		return err
	}
	defer w.release()
	return w.writeLocked(frame)
}

// writeLocked writes what is queued and then the frame; the caller has acquired.
func (w *writer) writeLocked(frame []byte) error {
	if err := w.flushLocked(); err != nil {
		return err
	}
	return w.put(frame)
}

func (w *writer) flushLocked() error {
	for {
		w.mu.Lock()
		batch, err := w.queue, w.err
		w.queue = nil
		w.mu.Unlock()
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, frame := range batch {
			err := w.put(frame)
			w.written(len(frame))
			if err != nil {
				return err
			}
		}
	}
}

func (w *writer) put(frame []byte) error {
	_, err := w.w.Write(frame)
	if err == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf("rpc: writing: %w", err)
		if w.closing {
			w.err = ErrClosed
		}
	}
	return w.err
}

// enqueue takes an answer for writing and does not block.
func (w *writer) enqueue(frame []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return ErrClosed
	}
	if w.err != nil {
		return w.err
	}
	w.queue = append(w.queue, frame)
	w.bytes += len(frame)
	if w.flushed == nil {
		w.flushed = make(chan struct{})
		go w.flush(w.flushed)
	}
	return nil
}

func (w *writer) written(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes -= n
	close(w.room)
	w.room = make(chan struct{})
}

// waitRoom waits while the peer leaves more than maxQueuedBytes of answers unread: who asks
// on and never reads would take all memory. It returns when there is room, nothing can be
// written any more, or done is closed.
func (w *writer) waitRoom(done <-chan struct{}) {
	for {
		w.mu.Lock()
		full, room := w.bytes > maxQueuedBytes && w.err == nil && !w.closing, w.room
		w.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-room:
		case <-w.closed:
			return
		case <-done:
			return
		}
	}
}

// crowded reports whether the peer leaves many answers unread.
func (w *writer) crowded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) >= maxQueuedAnswers
}

// flush writes the queue until it is empty. close waits for it.
func (w *writer) flush(done chan struct{}) {
	defer close(done)
	if err := w.acquire(context.Background()); err != nil {
		return
	}
	defer w.release()
	for {
		err := w.flushLocked()
		w.mu.Lock()
		if err != nil || len(w.queue) == 0 {
			w.flushed = nil
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// close refuses new frames, gives queued answers closeGrace to go out, and
// closes the stream when it can be closed.
func (w *writer) close() error {
	w.mu.Lock()
	w.closing = true
	flushed := w.flushed
	w.mu.Unlock()
	await(flushed)
	close(w.closed)
	var err error
	if c, ok := w.w.(io.Closer); ok {
		err = c.Close()
	}
	await(flushed)
	return err
}

// await waits for a channel to be closed, at the most closeGrace; nil needs no waiting.
func await(done <-chan struct{}) {
	if done == nil {
		return
	}
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
