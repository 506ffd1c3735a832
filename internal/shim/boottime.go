//go:build unix

package shim

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime is a moment in nanoseconds on the clock of this host that goes on while the
// host is suspended and that nobody can set (Linux: CLOCK_BOOTTIME; elsewhere
// CLOCK_MONOTONIC). It means the same in every process of the host and nothing on
// another one, nor after a reboot. Zero is no moment.
type Boottime int64

// Now is the present moment.
func Now() Boottime {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		// The clock is part of every kernel that we run on. Without it no deadline could be
		// kept, so every one counts as passed.
		return Boottime(1<<63 - 1)
	}
	return Boottime(ts.Nano())
}

// After is the moment d from now.
func After(d time.Duration) Boottime { return Now() + Boottime(d) }
