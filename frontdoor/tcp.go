package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ServeTCP accepts connections until ctx ends, then closes the listener and all of them
// and waits for them. A client that goes ends its connection; OnDisconnect decides about
// its waiting prompts, and its running turns go on.
func (f *FrontDoor) ServeTCP(ctx context.Context, l net.Listener) error {
	f.mu.Lock()
	f.listen = l.Addr().String()
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept says that it is closed
	defer stop()
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = c.Close() // came too late
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("front door: accept: %w", err)
		case err != nil:
			// Out of descriptors, as a rule: others may give some back.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			f.log.Warn("connection not accepted", "error", err)
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			continue
		}
		pause = 0
		open.Go(func() {
			defer func() { _ = c.Close() }() // closed already, as a rule
			if err := f.Serve(ctx, c, c, ConnOptions{GoneAtEOF: true}); err != nil && ctx.Err() == nil {
				f.log.Debug("connection ended", "error", err)
			}
		})
	}
}
