package devfleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrRunning says that another fleet has the state directory.
var ErrRunning = errors.New("a dev fleet runs there already")

// lockDir makes the state directory and takes its lock, which ends with the process.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the user's own state directory
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		closeErr := f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("state directory %s: %w", dir, ErrRunning)
		}
		return nil, fmt.Errorf("lock state directory %s: %w", dir, errors.Join(err, closeErr))
	}
	return f, nil
}
