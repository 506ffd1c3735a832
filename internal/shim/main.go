//go:build unix

package shim

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The shim's pipes; see the package documentation.
const (
	fdStdin   = 0
	fdControl = 3
	fdReport  = 4
	fdHold    = 5
)

// Main is the body of the shim process: it returns the exit code when the tree is gone.
// It takes the whole process for itself (signals, descriptors, children), so it must be
// the only thing that the process does, called before anything else is set up. It takes
// no arguments: what to start comes on the control pipe. Give the code to syscall.Exit:
// os.Exit takes a second more in a binary with the race detector.
func Main(args []string) int {
	if len(args) > 0 {
		_, _ = fmt.Fprintln(os.Stderr, "shim: started by workers only; takes no arguments")
		return 2
	}
	if _, err := unix.FcntlInt(fdControl, unix.F_GETFD, 0); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "shim: started by workers only; no control pipe")
		return 2
	}
	// The raider's parent death signal comes when the thread that started it ends.
	runtime.LockOSThread()
	// Caught and not ignored: a signal that is ignored stays so in the raider.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	closeOnExec()
	report := os.NewFile(fdReport, "report")
	fail := func(err error) int {
		_, _ = report.Write(newFrame(repFailed, []byte(err.Error())...))
		return 1
	}
	t, raiderStdin, err := prepare(report)
	if err != nil {
		return fail(err)
	}
	t.report(repReady)
	control := os.NewFile(fdControl, "control")
	kind, payload, err := readFrame(control)
	if err != nil || kind != cmdStart {
		return 0 // never needed, and the worker has gone
	}
	if err := t.start(payload, raiderStdin); err != nil {
		return fail(err)
	}
	// These end with the process: it ends when the tree is gone, whatever they wait for.
	go t.obey(control)
	go t.watchDeadline()
	go t.feed()
	go t.killWhenTold()
	t.reap()
	t.report(repGone)
	return 0
}

// prepare does all that can be done before it is known what to start, so that a shim that
// was started ahead has little left to do. It returns the raider's end of its stdin too.
func prepare(report io.Writer) (*tree, *os.File, error) {
	if err := becomeSubreaper(); err != nil {
		return nil, nil, fmt.Errorf("become the reaper of the process tree: %w", err)
	}
	// Descriptor 0 stays taken, so that no other file gets the number.
	in, err := unix.FcntlInt(fdStdin, unix.F_DUPFD_CLOEXEC, fdHold+1)
	if err != nil {
		return nil, nil, fmt.Errorf("keep stdin: %w", err)
	}
	discard(fdStdin)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe for stdin: %w", err)
	}
	alarm, err := newAlarm()
	if err != nil {
		return nil, nil, fmt.Errorf("make the deadline's timer: %w", err)
	}
	return &tree{
		dying: make(chan struct{}), alarm: alarm,
		stdin: os.NewFile(uintptr(in), "stdin"), raiderStdin: w, reports: report,
	}, r, nil
}

// start starts the raider and gives up the shim's copies of its pipes.
func (t *tree) start(payload []byte, stdin *os.File) error {
	o, err := decodeOrder(payload)
	if err != nil {
		return err
	}
	t.deadline.Store(int64(o.deadline))
	in := int(stdin.Fd())
	if err := unix.SetNonblock(in, false); err != nil { // what a raider expects
		return fmt.Errorf("set up stdin: %w", err)
	}
	// As late as can be: after this line nothing waits.
	if Now() >= o.deadline {
		return errPast
	}
	t.raider, err = syscall.ForkExec(o.path, o.args, &syscall.ProcAttr{ //nolint:gosec // to start what the worker says is what it is for
		Dir:   o.dir,
		Env:   o.env,
		Files: []uintptr{uintptr(in), 1, 2},
		Sys:   raiderAttr(),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	t.report(repStarted, be32(t.raider)...)
	_ = stdin.Close()
	discard(1)
	discard(2)
	return nil
}

// discard puts /dev/null in the place of a descriptor: as long as the shim held the
// raider's stdout, its reader would never see the end; a free 1 or 2 would be given to
// another file.
func discard(fd int) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	_ = dup2(null, fd)
	_ = unix.Close(null)
}
