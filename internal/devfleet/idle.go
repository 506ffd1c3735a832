package devfleet

import (
	"context"
	"time"
)

// idle ends a fleet that nobody uses.
type idle struct {
	after              time.Duration // 0: never
	used               func() bool
	announce, withdraw func() error
}

// wait blocks until ctx ends or nobody has used the fleet for after.
//
// Before it leaves, the ready file goes, and only then it looks for the last time: who
// joins connects first and looks for the ready file after that, so either this look sees
// the connection or the other one sees that there is no fleet any more.
func (i idle) wait(ctx context.Context) error {
	if i.after <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(max(i.after/60, 10*time.Millisecond))
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if i.used() {
			last = time.Now()
			continue
		}
		if time.Since(last) < i.after {
			continue
		}
		if err := i.withdraw(); err != nil {
			return err
		}
		if !i.used() {
			return nil
		}
		last = time.Now()
		if err := i.announce(); err != nil {
			return err
		}
	}
}
