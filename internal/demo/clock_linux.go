package demo

import "golang.org/x/sys/unix"

// bootNanos is the time since boot, the same clock in all processes of a host
// and one that goes on in suspend. 0 when the system has none.
func bootNanos() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
