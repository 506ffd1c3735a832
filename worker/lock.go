package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"raiderfleet/subjects"
)

// stateLock keeps a second worker out of the state directory.
type stateLock struct {
	file *os.File
	path string
}

// lockState takes the lock. Shims inherit it: it is free only when the earlier worker
// and every process tree of it are gone.
func lockState(ctx context.Context, dir string) (*stateLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("worker: state directory: %w", err)
	}
	path := filepath.Join(dir, "worker.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator's own state directory
	if err != nil {
		return nil, fmt.Errorf("worker: state directory: %w", err)
	}
	// The shims of a worker that was just killed take a moment to end their trees.
	deadline, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := tryLock(f)
		if err == nil {
			return &stateLock{file: f, path: path}, nil
		}
		select {
		case <-tick.C:
		case <-deadline.Done():
			_ = f.Close()
			return nil, fmt.Errorf("worker: state directory %s is in use by another worker or its raiders: %w", dir, err)
		}
	}
}

// earlier is the instance that held the lock before, empty when there was none.
func (s *stateLock) earlier() subjects.Instance {
	body, err := os.ReadFile(s.path)
	if err != nil {
		return ""
	}
	i, err := subjects.ParseInstance(string(body))
	if err != nil {
		return ""
	}
	return i
}

func (s *stateLock) note(i subjects.Instance) error {
	if err := os.WriteFile(s.path, []byte(i), 0o600); err != nil {
		return fmt.Errorf("worker: state directory: %w", err)
	}
	return nil
}

func (s *stateLock) release() { _ = s.file.Close() }
