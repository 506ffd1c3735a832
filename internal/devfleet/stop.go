package devfleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lastMoment is what a process may take to end after it has given up its directory.
const lastMoment = 2 * time.Second

// Stop tells the fleet on the state directory to end, as Ctrl-C does, and waits until it has
// ended or ctx ends. asked is called with its process when that has been told, if it isn't
// nil. ErrNotRunning when there is none.
func Stop(ctx context.Context, o JoinOptions, asked func(pid int)) error {
	// Joined first: the process that answers there is the fleet's, and no other one that has
	// got its number.
	o.Leaving = true
	j, err := Join(ctx, o)
	if err != nil {
		return err
	}
	j.Bus.Close()
	if err := syscall.Kill(j.Ready.PID, syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", j.Ready.PID, err)
	}
	if asked != nil {
		asked(j.Ready.PID)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var since time.Time // it has given up its directory
	for {
		// Its files go first, the lock next: then nothing of it is left but the process, for
		// a moment. One that nobody waits for stays in the system's table.
		ended, err := over(o.Dir, j.Ready)
		if err != nil {
			return err
		}
		if ended && since.IsZero() {
			since = time.Now()
		}
		if ended && (syscall.Kill(j.Ready.PID, 0) != nil || time.Since(since) > lastMoment) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d has not ended yet: %w", j.Ready.PID, ctx.Err())
		}
	}
}

// over says whether a fleet has ended; another one may have begun.
func over(dir string, r Ready) (bool, error) {
	for _, name := range []string{readyName, leavingName} {
		if now, err := ReadReady(filepath.Join(dir, name)); err == nil && now.ID == r.ID && syscall.Kill(r.PID, 0) == nil {
			return false, nil
		}
	}
	lock, err := lockDir(dir)
	if errors.Is(err, ErrRunning) {
		return syscall.Kill(r.PID, 0) != nil, nil // another one's, if it is not this one's
	}
	if err != nil {
		return false, err
	}
	return true, lock.Close()
}
