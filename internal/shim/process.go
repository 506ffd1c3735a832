//go:build unix

package shim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// writeTimeout bounds a write of a command. The shim reads at once, so a full pipe means
// that it is stopped or stuck.
const writeTimeout = 20 * time.Millisecond

// Spec is what to start.
type Spec struct {
	// Exe is the argv prefix that starts the shim. Default {os.Executable(), "shim"}.
	Exe []string
	// Command is the raider's command and arguments. A command without a slash is looked
	// up in the PATH of Env, or in the own one if Env has none; a relative one counts from
	// Dir.
	Command []string
	// Dir is the raider's working directory. Default the own one.
	Dir string
	// Env is the raider's whole environment, nothing is added. Default none.
	Env []string
	// Deadline is when the tree is killed unless SetDeadline moves it. Required.
	Deadline Boottime
	// Hold, if not nil, is a file that the shim keeps open until the tree is gone, and the
	// raider doesn't get: a lock, say, that is free when nothing is left.
	Hold *os.File
	// Pool, if not nil, gives a shim that was started ahead; Exe and Hold are then the
	// pool's, unless it is empty at the moment.
	Pool *Pool
}

// Process is a raider under a shim. Its methods are safe for many goroutines.
type Process struct {
	link   *link
	stdout *output
	stderr *output

	writing sync.Mutex // one command at a time on the control pipe

	started chan struct{} // closed when the raider runs
	exited  chan struct{}
	gone    chan struct{}

	// Written by watch before it closes the channel that says so.
	pid     int
	failure error
	exit    Exit
}

// Start starts a raider under a shim and returns when it runs. ctx bounds the start only.
//
// The error names the command or the directory if it doesn't exist, and says so if the
// deadline has passed. After an error nothing runs.
//
// The process must be ended (Kill, Stop, or by itself) and its Stdout and Stderr read to
// their end or closed.
func Start(ctx context.Context, s Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start: %w", context.Cause(ctx))
	}
	path, err := find(s)
	if err != nil {
		return nil, err
	}
	frame, err := order{deadline: s.Deadline, path: path, dir: s.Dir, args: s.Command, env: s.Env}.encode()
	if err != nil {
		return nil, err
	}
	if Now() >= s.Deadline {
		return nil, errPast
	}
	frame = newFrame(cmdStart, frame...)
	if l := s.Pool.take(); l != nil {
		p, err := begin(ctx, l, frame)
		if !errors.Is(err, errNoAnswer) {
			return p, err
		}
		// It had died while it waited.
	}
	l, err := launch(s.Exe, s.Hold)
	if err != nil {
		return nil, err
	}
	return begin(ctx, l, frame)
}

// errNoAnswer means that a shim ended without a word.
var errNoAnswer = errors.New("the shim ended before it started the command")

// begin gives a shim its start command and waits for the answer.
func begin(ctx context.Context, l *link, frame []byte) (*Process, error) {
	p := &Process{
		link: l, stdout: &output{f: l.stdout}, stderr: &output{f: l.stderr},
		started: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}),
	}
	go p.watch()
	stop := context.AfterFunc(ctx, p.Kill)
	_, _ = l.control.Write(frame) // a shim that can't be written to ends, and watch sees it
	select {
	case <-p.started:
		if stop() {
			return p, nil
		}
	case <-p.gone:
		stop()
	}
	// A shim that has been told to stop and has not started anything has nothing to wait
	// for: it is no shim, or it is stuck.
	stuck := time.AfterFunc(readyTimeout, func() {
		select {
		case <-p.started: // after all; it ends when the tree is gone
		default:
			_ = l.proc.Kill()
		}
	})
	<-p.gone
	stuck.Stop()
	_ = p.stdout.Close()
	_ = p.stderr.Close()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("start: %w", context.Cause(ctx))
	}
	if p.failure == nil {
		p.failure = errNoAnswer
	}
	return nil, p.failure
}

// watch takes the shim's reports until it has ended, and then reaps it.
func (p *Process) watch() {
	defer close(p.gone)
	running, exited, clean := false, false, false
	for {
		kind, b, err := readFrame(p.link.reports)
		if err != nil {
			break
		}
		switch {
		case kind == repStarted && len(b) == 4:
			p.pid = int(binary.BigEndian.Uint32(b))
			running = true
			close(p.started)
		case kind == repFailed:
			p.failure = errors.New(string(b))
			if p.failure.Error() == errPast.Error() {
				p.failure = errPast
			}
			clean = true
		case kind == repExited && len(b) == 6 && !exited:
			p.exit = Exit{
				Code:     int(int32(binary.BigEndian.Uint32(b))), //nolint:gosec // was an int32
				Signal:   syscall.Signal(b[4]),
				Deadline: b[5] != 0,
			}
			exited = true
			close(p.exited)
		case kind == repGone:
			clean = true
		}
	}
	_ = p.link.stdin.Close()
	p.writing.Lock()
	_ = p.link.control.Close()
	p.writing.Unlock()
	_ = p.link.reports.Close()
	_, _ = p.link.proc.Wait() // how it ended we know from its reports
	if !clean && running {
		killOrphans(p.pid, p.link.inodes)
	} else if !clean {
		killOrphans(0, p.link.inodes)
	}
	if !exited {
		p.exit = Exit{Code: -1, Signal: syscall.SIGKILL, lost: true}
		close(p.exited)
	}
}

// Stdin writes to the raider, through the shim: what arrives there after the deadline is
// dropped. Close gives the raider EOF.
func (p *Process) Stdin() io.WriteCloser { return p.link.stdin }

// Stdout reads from the raider. It closes itself at the end; the end comes when nobody
// holds the other side any more, at the latest with Gone.
func (p *Process) Stdout() io.ReadCloser { return p.stdout }

// Stderr is like Stdout.
func (p *Process) Stderr() io.ReadCloser { return p.stderr }

// PID is the raider's process id, which is its process group's too.
func (p *Process) PID() int { return p.pid }

// Exited is closed when the raider itself has ended. The rest of its tree is then killed.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Exit is how the raider ended. It waits for Exited.
func (p *Process) Exit() Exit {
	<-p.exited
	return p.exit
}

// Gone is closed when nothing of the raider's tree runs any more and the shim has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// SetDeadline moves the deadline, also to an earlier moment. A deadline that has passed
// can't be moved any more: the tree is killed. It waits 20 ms at most; an error means that
// the deadline is where it was, or that the shim has ended.
func (p *Process) SetDeadline(d Boottime) error {
	return p.command(cmdDeadline, binary.BigEndian.AppendUint64(nil, uint64(d))...) //nolint:gosec // turned back by the shim
}

// Signal sends sig to the raider's process group. It waits 20 ms at most and doesn't wait
// for an effect; nothing is sent to a raider that has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.command(cmdSignal, byte(sig)) //nolint:gosec // at most 64
}

// Kill kills the whole tree with SIGKILL, at once and without waiting; Gone says when it
// is done.
func (p *Process) Kill() {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.link.control.Close()              // a full pipe can't keep this back
	_ = p.link.proc.Signal(syscall.SIGCONT) // it may have been stopped
}

// Stop ends the raider: EOF on its stdin, after grace SIGTERM to its group, after another
// one SIGKILL to its tree. It returns when the tree is gone.
func (p *Process) Stop(grace time.Duration) {
	_ = p.link.stdin.Close()
	if p.goneWithin(grace) {
		return
	}
	_ = p.Signal(syscall.SIGTERM) // if it fails, KILL follows
	if p.goneWithin(grace) {
		return
	}
	p.Kill()
	<-p.gone
}

func (p *Process) goneWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.gone:
		return true
	case <-t.C:
		return false
	}
}

// command writes a command. It is smaller than what a pipe takes whole or not at all.
func (p *Process) command(kind byte, payload ...byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := p.link.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("the raider has ended: %w", err)
	}
	if _, err := p.link.control.Write(newFrame(kind, payload...)); err != nil {
		return fmt.Errorf("the shim takes no command: %w", err)
	}
	return nil
}

// output is a pipe that is closed when it has been read to its end.
type output struct{ f *os.File }

func (o *output) Read(b []byte) (int, error) {
	n, err := o.f.Read(b)
	if err != nil {
		_ = o.f.Close()
		if errors.Is(err, os.ErrClosed) {
			err = io.EOF // by Close, or read again after the end
		}
	}
	return n, err //nolint:wrapcheck // io.EOF must stay as it is
}

func (o *output) Close() error {
	if err := o.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
