//go:build unix

package shim

import (
	"fmt"
	"syscall"
)

// Exit is how a raider ended.
type Exit struct {
	Code     int            // exit code; -1 after a signal
	Signal   syscall.Signal // that killed it; 0 if none did
	Deadline bool           // the shim killed it because the deadline had passed
	lost     bool           // the shim was killed, so nobody saw it
}

// String is a text such as "exit code 3" or "killed by signal 9 (killed)".
func (e Exit) String() string {
	switch {
	case e.lost:
		return "killed with its shim"
	case e.Signal == 0:
		return fmt.Sprintf("exit code %d", e.Code)
	case e.Deadline:
		return fmt.Sprintf("killed by signal %d (%s): its deadline had passed", int(e.Signal), e.Signal)
	default:
		return fmt.Sprintf("killed by signal %d (%s)", int(e.Signal), e.Signal)
	}
}
