// Package port opens TCP listeners and says who has a port that is taken.
package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// TakenError says that another process listens at an address.
type TakenError struct {
	Address string
	// PID and Command tell the process, as far as can be known: on Linux, and of the user's
	// own processes only. PID is 0 when it is not known.
	PID     int
	Command string

	cause error
}

// Error is a text for a person.
func (e *TakenError) Error() string {
	if e.PID == 0 {
		return e.Address + " is taken by another process"
	}
	return fmt.Sprintf("%s is taken by process %d (%s)", e.Address, e.PID, e.Command)
}

// Unwrap returns the system's error.
func (e *TakenError) Unwrap() error { return e.cause }

// ListenNear is Listen, or when somebody has the port one at a free port of the same host;
// taken says then who has it.
func ListenNear(ctx context.Context, address string) (l net.Listener, taken, err error) {
	l, err = Listen(ctx, address)
	if host, _, splitErr := net.SplitHostPort(address); err != nil && splitErr == nil {
		if l, anyErr := Listen(ctx, net.JoinHostPort(host, "0")); anyErr == nil {
			return l, err, nil
		}
	}
	return l, nil, err
}

// Listen opens a listener at a host:port. *TakenError when somebody has it.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	taken := &TakenError{Address: address, cause: err}
	if _, text, splitErr := net.SplitHostPort(address); splitErr == nil {
		if n, lookErr := net.DefaultResolver.LookupPort(ctx, "tcp", text); lookErr == nil {
			taken.PID, taken.Command = holder(n)
		}
	}
	return nil, taken
}
