//go:build unix

package shim

import (
	"context"
	"os"
	"time"
)

// refillPause is how long a pool that gave one away waits before it starts the next: the
// raider that is starting needs the processors now.
const refillPause = 50 * time.Millisecond

// Pool keeps shims that were started ahead, so that the start of a raider doesn't wait
// for the start of our own large binary too. A shim that waits runs nothing; it ends when
// the pool or the worker does. A nil Pool is empty; one that is empty does no harm.
type Pool struct {
	exe   []string
	hold  *os.File
	ready chan *link    // only Run sends, and never more than fit
	taken chan struct{} // wakes Run
}

// NewPool makes a pool of size shims (at least 1), which Run starts. exe and hold are as
// in Spec.
func NewPool(exe []string, hold *os.File, size int) *Pool {
	return &Pool{exe: exe, hold: hold, ready: make(chan *link, max(1, size)), taken: make(chan struct{}, 1)}
}

// Len is how many shims wait at the moment.
func (p *Pool) Len() int { return len(p.ready) }

// Run keeps the pool full until ctx ends, then ends the shims that wait and returns nil.
// It returns an error if shims can't be started; raiders are then started without it.
// Call it once.
func (p *Pool) Run(ctx context.Context) error {
	defer p.empty()
	failures := 0
	for {
		for len(p.ready) < cap(p.ready) && ctx.Err() == nil {
			l, err := p.launch()
			if err == nil {
				failures = 0
				p.ready <- l
				continue
			}
			if failures++; failures == 3 {
				return err
			}
			pause(ctx, time.Second) // out of processes or descriptors, perhaps for a moment
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.taken:
			pause(ctx, refillPause)
		}
	}
}

func (p *Pool) launch() (*link, error) {
	l, err := launch(p.exe, p.hold)
	if err != nil {
		return nil, err
	}
	if err := l.ready(); err != nil {
		l.drop()
		return nil, err
	}
	return l, nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (p *Pool) empty() {
	for l := p.take(); l != nil; l = p.take() {
		l.drop()
	}
}

// take returns a waiting shim, nil if there is none.
func (p *Pool) take() *link {
	if p == nil {
		return nil
	}
	select {
	case l := <-p.ready:
		select {
		case p.taken <- struct{}{}:
		default: // it is awake already
		}
		return l
	default:
		return nil
	}
}
