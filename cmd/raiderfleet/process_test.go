package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/devfleet"
)

// patience is how long a test waits for what must come; only a failure takes it.
const patience = time.Minute

// home is where the processes of a test have their state and configuration.
type home struct {
	t   *testing.T
	dir string
	env []string
}

func newHome(t *testing.T, env ...string) *home {
	t.Helper()
	dir := t.TempDir()
	h := &home{t: t, dir: dir}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RAIDERFLEET_") && !strings.HasPrefix(v, "XDG_") {
			h.env = append(h.env, v)
		}
	}
	h.env = append(h.env,
		asProgram+"=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"),
		"RAIDERFLEET_WORKER_NAME=w1", "RAIDERFLEET_FRONTDOOR_LISTEN=127.0.0.1:0")
	h.env = append(h.env, env...)
	return h
}

func (h *home) devDir() string { return filepath.Join(h.dir, "state", "raiderfleet", "dev") }

// process is a running raiderfleet.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	args   []string
	stdin  io.WriteCloser
	stdout *output
	stderr *output
	ended  chan struct{}
	code   int
}

// output collects what a process writes and says when there is more.
type output struct {
	mu   sync.Mutex // guards the rest
	b    bytes.Buffer
	more chan struct{}
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.b.Write(p)
}

func (o *output) get() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String(), o.more
}

func (o *output) String() string { s, _ := o.get(); return s }

// start starts raiderfleet in a session of its own, so that it has no terminal.
func (h *home) start(args ...string) *process {
	h.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	p := &process{t: h.t, args: args, stdout: newOutput(), stderr: newOutput(), ended: make(chan struct{})}
	p.cmd = exec.Command(exe, args...)
	p.cmd.Env, p.cmd.Dir = h.env, h.dir
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A raider that is left behind would keep the pipes open; it is a failure of its own.
	p.cmd.WaitDelay = 10 * time.Second
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		h.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		var exit *exec.ExitError
		switch err := p.cmd.Wait(); {
		case errors.As(err, &exit):
			p.code = exit.ExitCode()
		case err != nil:
			p.t.Errorf("%q: %v", args, err)
		}
	}()
	h.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended in most tests
		<-p.ended
		if h.t.Failed() {
			h.t.Logf("stderr of %q:\n%s", args, p.stderr)
		}
	})
	return p
}

// run runs a command without input to its end.
func (h *home) run(args ...string) *process {
	h.t.Helper()
	p := h.start(args...)
	if err := p.stdin.Close(); err != nil {
		h.t.Fatal(err)
	}
	p.wait()
	return p
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.code
	case <-timer.C:
		p.t.Fatalf("%q did not end; stdout:\n%s\nstderr:\n%s", p.args, p.stdout, p.stderr)
		return 0
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %q: %v", p.args, err)
	}
}

// kill is kill -9, and waits until it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// says waits until an output holds text.
func (p *process) says(o *output, text string) string {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		got, more := o.get()
		if strings.Contains(got, text) {
			return got
		}
		select {
		case <-more:
		case <-p.ended:
			if got := o.String(); !strings.Contains(got, text) {
				p.t.Fatalf("%q ended with %d and did not say %q; stdout:\n%s\nstderr:\n%s", p.args, p.code, text, p.stdout, p.stderr)
			}
			return o.String()
		case <-timer.C:
			p.t.Fatalf("%q did not say %q; stdout:\n%s\nstderr:\n%s", p.args, text, p.stdout, p.stderr)
		}
	}
}

// serve starts a server and waits for its ready file.
func (h *home) serve(args ...string) (*process, devfleet.Ready) {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "ready.json")
	p := h.start(append(args, "--ready-file", path)...)
	var r devfleet.Ready
	p.poll("its ready file", func() bool {
		var err error
		r, err = devfleet.ReadReady(path)
		return err == nil
	})
	return p, r
}

// poll waits until f is true or the process has ended.
func (p *process) poll(what string, f func() bool) {
	p.t.Helper()
	poll(p.t, what, func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("%q ended with %d before %s; stderr:\n%s", p.args, p.code, what, p.stderr)
		default:
		}
		return f()
	})
}

func poll(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// want checks how a command ended.
func (p *process) want(code int, stdout string, stderr ...string) {
	p.t.Helper()
	if p.code != code || p.stdout.String() != stdout {
		p.t.Errorf("%q ended with %d and said %q, want %d and %q; stderr:\n%s", p.args, p.code, p.stdout, code, stdout, p.stderr)
	}
	got := p.stderr.String()
	if len(stderr) == 0 && got != "" {
		p.t.Errorf("%q wrote to stderr:\n%s", p.args, got)
	}
	if i := slices.IndexFunc(stderr, func(s string) bool { return !strings.Contains(got, s) }); i >= 0 {
		p.t.Errorf("%q did not write %q to stderr but:\n%s", p.args, stderr[i], got)
	}
}
