package shim_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"raiderfleet/internal/shim"
)

// proc is what /proc says of a process.
type proc struct {
	state  byte
	parent int
}

func look(pid int) (proc, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{}, false
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	var p proc
	p.state = f[0][0]
	_, err = fmt.Sscan(string(f[1]), &p.parent)
	return p, err == nil
}

func runs(pid int) bool {
	p, ok := look(pid)
	return ok && p.state != 'Z' && p.state != 'X'
}

// ended waits until none of the processes runs.
func ended(t *testing.T, pids ...int) {
	t.Helper()
	until(t, func() string {
		for _, pid := range pids {
			if runs(pid) {
				p, _ := look(pid)
				return fmt.Sprintf("process %d of %v still runs: state %c, parent %d", pid, pids, p.state, p.parent)
			}
		}
		return ""
	})
}

// pidsOf reads n pids from a line and sees that all run.
func pidsOf(t *testing.T, line string, n int) []int {
	t.Helper()
	pids := make([]int, n)
	for i, f := range strings.Fields(line) {
		if i < n {
			if _, err := fmt.Sscan(f, &pids[i]); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	for _, pid := range pids {
		if pid == 0 || !runs(pid) {
			t.Fatalf("process %d of %q doesn't run", pid, line)
		}
	}
	return pids
}

// workerWith starts a worker process with a tree and returns it and the tree's pids.
func workerWith(t *testing.T, deadline string) (*exec.Cmd, []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "worker", deadline, "tree", "closed")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pids := pidsOf(t, line(t, out), 4)
	shimOf, _ := look(pids[1])
	return cmd, append(pids[1:], shimOf.parent)
}

func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	cmd, pids := workerWith(t, "10m")
	if d, _ := look(pids[2]); d.parent != pids[3] {
		t.Errorf("the double-forked process is a child of %d, not of the shim %d", d.parent, pids[3])
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended(t, pids...)
}

func TestWorkerStopped(t *testing.T) {
	t.Parallel()
	cmd, pids := workerWith(t, "4s") // the worker moves it every 400 ms
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended(t, pids...)
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	onTime(t, func(scale time.Duration) bool {
		s := spec("tree", "closed")
		s.Deadline = shim.After(2 * scale)
		p := startOnTime(t, s)
		if p == nil {
			return false
		}
		text, _ := bufio.NewReader(p.Stdout()).ReadString('\n')
		within(t, p.Gone(), "gone")
		if shim.Now() < s.Deadline {
			t.Error("killed before the deadline")
		}
		if text == "" {
			return false
		}
		var a, b, c int
		if _, err := fmt.Sscan(text, &a, &b, &c); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		ended(t, a, b, c)
		if got := p.Exit(); !got.Deadline || got.Signal != syscall.SIGKILL {
			t.Errorf("%+v", got)
		}
		return true
	})
}

func TestDeadlineMoved(t *testing.T) {
	t.Parallel()
	onTime(t, func(scale time.Duration) bool {
		s := spec("cat")
		first, second := shim.After(scale), shim.After(3*scale)
		s.Deadline = first
		p := startOnTime(t, s)
		if p == nil || p.SetDeadline(second) != nil {
			return false
		}
		until(t, func() string {
			if shim.Now() < first+shim.Boottime(scale/2) && !over(p.Exited()) {
				return "the first deadline has not passed"
			}
			return ""
		})
		if ended := over(p.Exited()); shim.Now() >= second {
			return false
		} else if ended {
			t.Error("ended before the deadline that was moved")
			return true
		}
		if err := p.SetDeadline(long()); err != nil {
			return false
		}
		if err := p.SetDeadline(1); err != nil { // to an earlier moment
			t.Fatal(err)
		}
		within(t, p.Gone(), "gone")
		if got := p.Exit(); !got.Deadline {
			t.Errorf("%+v", got)
		}
		return true
	})
}

// onTime runs a test that must do something before a deadline, with longer ones until the
// machine was fast enough for it: that says nothing about the shim.
func onTime(t *testing.T, test func(scale time.Duration) bool) {
	t.Helper()
	for scale := 500 * time.Millisecond; !test(scale); scale *= 2 {
		if scale > 20*time.Second {
			t.Fatal("the machine is too slow for any deadline")
		}
	}
}

// startOnTime is mustStart, or nil where the deadline passed before the raider ran.
func startOnTime(t *testing.T, s shim.Spec) *shim.Process {
	t.Helper()
	p, err := shim.Start(t.Context(), s)
	if err != nil {
		if shim.Now() < s.Deadline {
			t.Fatal(err)
		}
		return nil
	}
	tidy(t, p)
	return p
}

func over(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// A worker that is frozen between its check and its write, and a shim that is frozen too,
// so that it finds bytes, a new deadline and its alarm all at once.
func TestNothingReachesTheRaiderPastTheDeadline(t *testing.T) {
	t.Parallel()
	for range 5 {
		onTime(t, func(scale time.Duration) bool {
			file := filepath.Join(t.TempDir(), "got")
			s := spec()
			s.Command = []string{"/bin/sh", "-c", "echo ready; exec cat > " + file}
			deadline := shim.After(scale)
			s.Deadline = deadline
			p := startOnTime(t, s)
			if p == nil {
				return false
			}
			ready, _ := bufio.NewReader(p.Stdout()).ReadString('\n')
			own, _ := look(p.PID())
			if ready == "" || own.parent <= 1 || unix.Kill(own.parent, unix.SIGSTOP) != nil {
				return false
			}
			if shim.Now() >= deadline {
				_ = unix.Kill(own.parent, unix.SIGCONT)
				return false
			}
			until(t, func() string {
				if shim.Now() < deadline {
					return "the deadline has not passed"
				}
				return ""
			})
			if _, err := io.WriteString(p.Stdin(), "too late"); err != nil {
				t.Fatal(err)
			}
			if err := p.SetDeadline(long()); err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(own.parent, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			within(t, p.Gone(), "gone")
			if got, err := os.ReadFile(file); err != nil || len(got) > 0 {
				t.Errorf("the raider got %q, %v", got, err)
			}
			if !p.Exit().Deadline {
				t.Errorf("%+v", p.Exit())
			}
			return true
		})
	}
}

func TestRaiderEndsAndItsTreeToo(t *testing.T) {
	t.Parallel()
	p := mustStart(t, spec("tree", "holding", "end"))
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(p.Stderr()); err != nil { // held by the daemon until it is killed
		t.Fatal(err)
	}
	within(t, p.Gone(), "gone")
	var a, b, c int
	if _, err := fmt.Sscan(string(out), &a, &b, &c); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	ended(t, a, b, c)
	if got := p.Exit().String(); got != "exit code 0" {
		t.Error(got)
	}
}

func TestShimIgnoresSignalsAndTheRaiderDoesNot(t *testing.T) {
	t.Parallel()
	p := mustStart(t, spec("cat"))
	out := bufio.NewReader(p.Stdout())
	line(t, out)
	own, _ := look(p.PID())
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGTSTP} {
		if err := unix.Kill(own.parent, sig); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(p.Stdin(), "still here\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := out.ReadString('\n'); got != "still here\n" {
		t.Errorf("%q", got)
	}
}

func TestShimKilled(t *testing.T) {
	t.Parallel()
	p := mustStart(t, spec("tree", "holding"))
	pids := pidsOf(t, line(t, p.Stdout()), 3)
	own, _ := look(p.PID())
	if err := unix.Kill(own.parent, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, p.Gone(), "gone")
	// pids[1] has left the group and holds no pipe: it is the limit in the documentation.
	t.Cleanup(func() { _ = unix.Kill(pids[1], unix.SIGKILL) })
	ended(t, pids[0], pids[2])
	if got := p.Exit().String(); got != "killed with its shim" {
		t.Error(got)
	}
}

// Nobody is left to look for the raider: the kernel kills it.
func TestShimKilledAndWorkerStopped(t *testing.T) {
	t.Parallel()
	cmd, pids := workerWith(t, "10m")
	t.Cleanup(func() {
		for _, pid := range pids[1:3] { // the limit in the documentation
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pids[3], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, pids[0])
}

func TestKillOfAStoppedShim(t *testing.T) {
	t.Parallel()
	p := mustStart(t, spec("tree", "holding"))
	pids := pidsOf(t, line(t, p.Stdout()), 3)
	own, _ := look(p.PID())
	if err := unix.Kill(own.parent, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	within(t, p.Gone(), "gone")
	ended(t, pids...)
}

func TestForkBomb(t *testing.T) {
	t.Parallel()
	p := mustStart(t, spec("bomb", "first"))
	line(t, p.Stdout())
	p.Kill()
	within(t, p.Gone(), "gone")
}

func TestOnlyStdioIsInherited(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	leak, err := syscall.Dup(int(f.Fd())) // as if whoever started the worker had left it open
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(leak) }()
	s := spec("fds")
	s.Hold = f
	got := strings.Split(output(t, s), "\n")
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	for i, l := range got {
		if !strings.HasPrefix(l, fmt.Sprintf("%d pipe:", i)) {
			t.Errorf("%q", got)
		}
	}
}

func TestHoldIsReleasedWhenTheTreeIsGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	held, other := open(), open()
	defer func() { _ = other.Close() }()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	s := spec("cat")
	s.Hold = held
	p := mustStart(t, s)
	_ = held.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		t.Fatal("the lock is free although the raider runs")
	}
	p.Kill()
	within(t, p.Gone(), "gone")
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Error(err)
	}
}

// Not parallel: it counts the descriptors and children of the whole process.
func TestNothingLeaks(t *testing.T) { //nolint:paralleltest // see above
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	kids := func() (n int) {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				if p, ok := look(pid); ok && p.parent == os.Getpid() {
					n++
				}
			}
		}
		return n
	}
	round := func(n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				s := spec("cat")
				if i%5 == 4 {
					s.Deadline = 0 // fails
				}
				p, err := shim.Start(t.Context(), s)
				if err != nil {
					if s.Deadline != 0 {
						t.Error(err)
					}
					return
				}
				_ = p.Stdin().Close()
				if _, err := io.ReadAll(p.Stdout()); err != nil {
					t.Error(err)
				}
				<-p.Gone()
				_ = p.Stderr().Close()
			})
		}
		all.Wait()
	}
	round(2) // what the runtime opens once
	fds, children := count(), kids()
	round(50)
	if now := count(); now > fds {
		t.Errorf("%d descriptors, %d before", now, fds)
	}
	if now := kids(); now > children {
		t.Errorf("%d children, %d before", now, children)
	}
}
