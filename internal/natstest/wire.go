package natstest

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Wire is a way to a server that can be made slow, or cut. Safe for many goroutines.
type Wire struct {
	listener net.Listener
	server   string
	slow     atomic.Int64 // how late what the server says arrives, in nanoseconds

	mu    sync.Mutex // guards the rest
	cut   bool
	conns []net.Conn
	all   sync.WaitGroup
}

// NewWire listens on a free port. It ends with the test.
func NewWire(tb testing.TB, url string) *Wire {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		tb.Fatal(err)
	}
	w := &Wire{listener: listener, server: strings.TrimPrefix(url, "nats://")}
	w.all.Go(w.accept)
	tb.Cleanup(func() { _ = listener.Close(); w.Cut(true); w.all.Wait() })
	return w
}

// URL is where to connect to.
func (w *Wire) URL() string { return "nats://" + w.listener.Addr().String() }

// Slow makes all that the server says arrive by d later. Default 0.
func (w *Wire) Slow(d time.Duration) { w.slow.Store(int64(d)) }

// Cut ends all connections and takes no new ones, or takes them again.
func (w *Wire) Cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.conns = nil
	}
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		cut := w.cut
		w.mu.Unlock()
		if cut {
			_ = near.Close()
			continue
		}
		far, err := net.Dial("tcp", w.server) //nolint:noctx // at once
		if err != nil {
			_ = near.Close()
			continue
		}
		w.mu.Lock()
		if w.cut {
			_ = near.Close()
			_ = far.Close()
		}
		w.conns = append(w.conns, near, far)
		w.mu.Unlock()
		w.all.Go(func() { defer func() { _ = far.Close() }(); _, _ = io.Copy(far, near) })
		w.all.Go(func() { defer func() { _ = near.Close() }(); w.late(near, far) })
	}
}

func (w *Wire) late(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if d := w.slow.Load(); d > 0 {
			timer := time.NewTimer(time.Duration(d))
			<-timer.C
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
	}
}
