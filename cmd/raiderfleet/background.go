package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"raiderfleet/frontdoor"
)

// work runs beside a command until stop, also after a signal: the command decides what
// is to be finished first.
type work struct {
	ctx     context.Context //nolint:containedctx // the life of the work itself
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex // guards errs
	errs []error
}

func background(parent context.Context) *work {
	w := &work{}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(parent))
	return w
}

// run starts f. When it ends, all the work is told to.
func (w *work) run(f func(context.Context) error) {
	w.running.Go(func() {
		defer w.cancel()
		if err := f(w.ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.mu.Lock()
			w.errs = append(w.errs, err)
			w.mu.Unlock()
		}
	})
}

// serve connects to a front door of this process.
func (w *work) serve(fd *frontdoor.FrontDoor) net.Conn {
	return w.serveAs(fd, frontdoor.ConnOptions{})
}

// serveAs is serve for a client with options of its own.
func (w *work) serveAs(fd *frontdoor.FrontDoor, o frontdoor.ConnOptions) net.Conn {
	ours, theirs := net.Pipe()
	w.running.Go(func() {
		// Its end is no end of the work: the client comes to know it by its own end.
		_ = fd.Serve(w.ctx, theirs, theirs, o)
		_ = theirs.Close()
	})
	return ours
}

// stop ends the work and waits for it.
func (w *work) stop() error {
	w.cancel()
	w.running.Wait()
	return errors.Join(w.errs...)
}
