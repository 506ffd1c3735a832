package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal: what is typed into person comes out of tty.
func openTerminal(t *testing.T) (person, tty *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() }) // some tests have closed it
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return person, tty
}

// startOn starts raiderfleet on a terminal of its own. What it writes there is stdout.
func (h *home) startOn(args ...string) (*process, *os.File) {
	h.t.Helper()
	person, tty := openTerminal(h.t)
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	p := &process{t: h.t, args: args, stdout: newOutput(), stderr: newOutput(), ended: make(chan struct{})}
	p.cmd = exec.Command(exe, args...)
	p.cmd.Env, p.cmd.Dir = h.env, h.dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	if err := tty.Close(); err != nil {
		h.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(p.stdout, person) // EIO when nobody has the terminal any more
	}()
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the code says it
		<-read
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	h.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended in most tests
		<-p.ended
	})
	return p, person
}

func TestPermissionOnTheTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ typed, want string }{
		{"9\n1\n", "allowed once"}, {"2\n", "allowed always"}, {"3\n", "rejected"}, {"0\n", "rejected"},
	} {
		t.Run(strings.TrimSpace(tt.want), func(t *testing.T) {
			t.Parallel()
			p, person := newHome(t).startOn("prompt", "--dev", "ask")
			p.says(p.stdout, "Number: ")
			if _, err := io.WriteString(person, tt.typed); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(); code != 0 || !strings.Contains(p.stdout.String(), tt.want) {
				t.Errorf("it ended with %d and said\n%s", code, p.stdout)
			}
		})
	}
}

// Ctrl-C while the agent waits for an answer.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	p, person := newHome(t).startOn("prompt", "--dev", "ask")
	p.says(p.stdout, "Number: ")
	if _, err := io.WriteString(person, "\x03"); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 130 || !strings.Contains(p.stdout.String(), "cancelling…") {
		t.Errorf("it ended with %d and said\n%s", code, p.stdout)
	}
}

// A prompt that shows nothing says what it waits for, once; one that does show something
// doesn't.
func TestSlowStartOnTheTerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for name, args := range map[string][]string{
		"starting demo…":  {"prompt", "--dev", "hang"},
		"starting 1demo…": {"prompt", "--dev", "--raider", "1demo", "hang"},
	} {
		p, _ := h.startOn(args...)
		p.says(p.stdout, name)
		p.kill()
	}
	p, _ := h.startOn("prompt", "--dev", "sleep 4")
	if code := p.wait(); code != 0 || strings.Contains(p.stdout.String(), "starting") {
		t.Errorf("it ended with %d and said\n%s", code, p.stdout)
	}
}

// What a person sees beside the answer.
func TestNotesOnTheTerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for word, want := range map[string]string{"think": "thinks: ", "plan": "plan: ", "tool": "tool: "} {
		p, _ := h.startOn("prompt", "--dev", word)
		if code := p.wait(); code != 0 || !strings.Contains(p.stdout.String(), want) {
			t.Errorf("%s ended with %d and said\n%s", word, code, p.stdout)
		}
	}
}
