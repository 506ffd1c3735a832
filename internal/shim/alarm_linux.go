package shim

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const clock = unix.CLOCK_BOOTTIME

// alarm goes off at a moment of the clock, at once after a suspend that it passed in.
// Go's own timers don't count the time of a suspended host.
type alarm struct {
	fd   int
	file *os.File // fd, read through the poller
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(clock, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "alarm")}, nil
}

// set moves the moment. A wait that is under way takes the new one.
func (a *alarm) set(at Boottime) {
	// Zero would switch it off.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, int64(at)))}
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil) // fails on a bad fd or value only
}

// wait returns when the moment has come, sometimes earlier.
func (a *alarm) wait() {
	var b [8]byte
	if _, err := a.file.Read(b[:]); err != nil {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the caller then looks at the clock itself
	}
}
