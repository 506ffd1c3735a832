//go:build unix

package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"raiderfleet/internal/shim"
)

// drainGrace is how long a pipe that somebody still holds is read after the command has
// ended, counted from the last byte.
const drainGrace = time.Second

// process is a running command, the leader of a process group.
type process struct {
	proc           *os.Process
	stdout, stderr *output
	exited         chan struct{}
	exit           shim.Exit // set before exited is closed

	mu     sync.Mutex // guards reaped, and that nobody else's group gets a signal
	reaped bool
}

// startProcess starts a command with stdin at its end. Both outputs must be read to their
// end; drain is the grace they have after the command's.
func startProcess(argv []string, dir string, env []string, drain time.Duration) (*process, error) {
	path := argv[0]
	if !strings.Contains(path, "/") { // else it counts from dir
		found, err := exec.LookPath(path)
		if err != nil {
			return nil, fmt.Errorf("command %s: %w", path, errors.Unwrap(err))
		}
		path = found
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("open the command's stdin: %w", err)
	}
	defer func() { _ = null.Close() }() // only read
	p := &process{exited: make(chan struct{})}
	var ends [2]*os.File
	for i, out := range []**output{&p.stdout, &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeOutputs()
			return nil, fmt.Errorf("make a pipe for the command: %w", err)
		}
		*out, ends[i] = &output{f: r, exited: p.exited, grace: drain}, w
		defer func() { _ = w.Close() }() // the command has it
	}
	p.proc, err = os.StartProcess(path, argv, &os.ProcAttr{
		Dir: dir, Env: env, Files: []*os.File{null, ends[0], ends[1]},
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		p.closeOutputs()
		if errors.Is(err, syscall.E2BIG) {
			return nil, errors.New("the prompt is too long for this system's command lines")
		}
		return nil, fmt.Errorf("the command could not be started: %w", err)
	}
	return p, nil
}

func (p *process) closeOutputs() {
	for _, o := range []*output{p.stdout, p.stderr} {
		if o != nil {
			_ = o.f.Close() // was never used
		}
	}
}

// wait returns when the command itself has ended, and kills what is left of its group.
func (p *process) wait() {
	state, err := p.proc.Wait()
	p.mu.Lock()
	p.reaped = true
	// The group's number is not given to others while a process is in it; with none left
	// there is nobody to kill.
	_ = syscall.Kill(-p.proc.Pid, syscall.SIGKILL)
	p.mu.Unlock()
	p.exit = shim.Exit{Code: -1}
	if err == nil {
		p.exit.Code = state.ExitCode()
		if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			p.exit.Signal = ws.Signal()
		}
	}
	// A read that has begun ends too, if nothing comes.
	p.stdout.drain()
	p.stderr.drain()
	close(p.exited)
}

// signal sends to the command's group, unless the command has ended.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.proc.Pid, sig) // it may have ended
	}
}

// drainLimit is for how many graces such a pipe is waited for in all: who holds it may write
// for ever.
const drainLimit = 5

// output is the end of a pipe that is read. Once the command has ended, it ends when
// nothing has come for grace, or after drainLimit of them, even if a process that left the
// group still holds it.
type output struct {
	f      *os.File
	exited <-chan struct{}
	grace  time.Duration
	waited time.Duration // for it, after the command's end
}

func (o *output) drain() { _ = o.f.SetReadDeadline(time.Now().Add(o.grace)) }

// Read implements io.Reader.
func (o *output) Read(b []byte) (int, error) {
	begin, over := time.Now(), false
	select {
	case <-o.exited:
		// Only the waiting counts: the reader may be slow, too.
		over = o.waited >= drainLimit*o.grace
		o.drain()
	default:
		begin = time.Time{}
	}
	if over {
		_ = o.f.Close() // nothing more is read
		return 0, io.EOF
	}
	n, err := o.f.Read(b)
	if !begin.IsZero() {
		o.waited += time.Since(begin)
	}
	if err != nil {
		_ = o.f.Close() // nothing more is read
		return n, io.EOF
	}
	return n, nil
}
