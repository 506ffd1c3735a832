package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

const bjorn subjects.Raider = "bjorn"

// fleet is a server with the fleet's streams, and what a front door does there.
type fleet struct {
	t       *testing.T
	url     string
	ackWait time.Duration
	dir     string
	b       *bus.Bus
	f       subjects.Fleet
}

func newFleet(t *testing.T, ackWait time.Duration) *fleet {
	t.Helper()
	return newFleetAt(t, natstest.Server(t).ClientURL(), natstest.Layout(1), ackWait)
}

func newFleetAt(t *testing.T, url string, layout subjects.Layout, ackWait time.Duration) *fleet {
	t.Helper()
	f := &fleet{t: t, url: url, ackWait: ackWait, dir: t.TempDir(), f: layout.Fleet}
	// The observer's requests and pings have a minute's ack_wait's time: a busy machine is
	// no fault of what it observes.
	f.b = f.connectFor(time.Minute, url, layout)
	if err := f.b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) connect(url string, layout subjects.Layout) *bus.Bus {
	f.t.Helper()
	return f.connectFor(f.ackWait, url, layout)
}

func (f *fleet) connectFor(ackWait time.Duration, url string, layout subjects.Layout) *bus.Bus {
	f.t.Helper()
	b, err := bus.Connect(f.t.Context(), bus.Options{URLs: []string{url}, Name: f.t.Name(), Layout: layout, AckWait: ackWait})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(b.Close)
	return b
}

// path is a file of the test.
func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fleet) touch(name string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func raiderCommand(t *testing.T, args ...string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{exe, "test-raider"}, args...)
}

// noted waits until the raider has noted itself in file the n-th time; it returns its pid.
func (f *fleet) noted(file string, n int) int {
	f.t.Helper()
	pid := 0
	natstest.Eventually(f.t, 10*time.Second, "raider's note "+file, func() (bool, any) {
		lines := f.notes(file)
		if len(lines) < n {
			return false, lines
		}
		_, err := fmt.Sscan(lines[n-1], &pid)
		return err == nil, lines
	})
	return pid
}

func (f *fleet) notes(file string) []string {
	f.t.Helper()
	text, err := os.ReadFile(f.path(file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// gone waits until a process is gone and returns when it was seen.
func (f *fleet) gone(pid int, within time.Duration) shim.Boottime {
	f.t.Helper()
	natstest.Eventually(f.t, within, fmt.Sprintf("process %d is gone", pid), func() (bool, any) { return !alive(pid), "alive" })
	return shim.Now()
}
