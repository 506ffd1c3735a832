//go:build unix && !linux

package shim

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const clock = unix.CLOCK_MONOTONIC

func shimAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func raiderAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// becomeSubreaper does nothing: there is none here. The tree is the process group.
func becomeSubreaper() error { return nil }

func closeOnExec() {
	for fd := fdControl; fd <= fdHold; fd++ {
		unix.CloseOnExec(fd)
	}
}

func dup2(from, to int) error { return unix.Dup2(from, to) }

// reap reaps the raider and returns when its process group is empty.
func (t *tree) reap() {
	var ws unix.WaitStatus
	for {
		pid, err := unix.Wait4(t.raider, &ws, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == t.raider {
			break
		}
	}
	t.mu.Lock()
	t.exitLocked(ws)
	t.mu.Unlock()
	for unix.Kill(-t.raider, unix.SIGKILL) == nil {
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // nothing tells when a group is empty
	}
}

// killDescendants kills the process group; what left it is not found.
func (t *tree) killDescendants() { t.signal(unix.SIGKILL) }

// alarm looks at the clock every few milliseconds.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

func (*alarm) set(Boottime) {}

func (*alarm) wait() {
	time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the caller looks at the clock
}

// killOrphans kills what is left of a raider whose shim was killed.
func killOrphans(group int, _ []uint64) {
	for range 1000 {
		if group <= 1 || unix.Kill(-group, unix.SIGKILL) != nil {
			return
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // nothing tells when a group is empty
	}
}
