package proof

import (
	"net"
	"sync"
	"testing"
)

// proxy stands between two processes, to cut one off: what is sent meanwhile is either
// lost with the connection or delivered late.
type proxy struct {
	listener net.Listener
	wait     sync.WaitGroup
	tap      *tap // reads what passes, nil for none

	mu     sync.Mutex // guards the rest
	target string
	open   chan struct{} // closed while bytes pass
	conns  map[net.Conn]bool
	closed bool
}

func newProxy(tb testing.TB, target string, t *tap) *proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{listener: l, target: target, tap: t, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.open)
	p.wait.Go(p.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.restore(true)
		p.wait.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(c net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	s, err := net.Dial("tcp", target)
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	closed := p.closed
	p.mu.Unlock()
	if closed {
		_, _ = c.Close(), s.Close()
	}
	up, down := p.copy, p.copy
	if p.tap != nil {
		w := p.tap.wire()
		up = func(to, from net.Conn) { p.frames(to, from, w.up) }
		down = func(to, from net.Conn) { p.frames(to, from, w.down) }
	}
	p.wait.Go(func() { up(s, c) })
	down(c, s)
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, s)
	p.mu.Unlock()
}

func (p *proxy) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			<-p.gate()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// frames copies NATS protocol messages, those that pass says yes to.
func (p *proxy) frames(to, from net.Conn, pass func(frame) bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	in := newFrameReader(from)
	for {
		f, err := in.next()
		if err != nil {
			return
		}
		<-p.gate()
		if !pass(f) {
			continue
		}
		if _, err := to.Write(f.raw); err != nil {
			return
		}
	}
}

func (p *proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// cut holds back all bytes, both ways.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// restore lets bytes pass again: the held ones arrive late, or their connections are
// closed first and they are lost.
func (p *proxy) restore(lose bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lose {
		for c := range p.conns {
			_ = c.Close()
		}
	}
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// aim sends new connections to another server.
func (p *proxy) aim(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}
