package shim

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// shimAttr puts the shim in a session of its own: no signal for the worker's group or
// terminal reaches it.
func shimAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func raiderAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func becomeSubreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// closeOnExec keeps every descriptor but 0, 1 and 2 from the raider, also what the worker
// itself got from whoever started it.
func closeOnExec() {
	if unix.CloseRange(fdControl, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		for _, fd := range []int{fdControl, fdReport, fdHold} {
			unix.CloseOnExec(fd)
		}
		return
	}
	for _, e := range dir {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= fdControl {
			unix.CloseOnExec(fd)
		}
	}
}

// reap reaps the raider and every process that was left to the shim, and returns when
// there is none left.
func (t *tree) reap() {
	flags := unix.WEXITED | unix.WNOWAIT | unix.WALL
	for {
		var info unix.Siginfo
		// Looked at first and reaped under the lock, so that a number that is free again is
		// never signalled.
		err := unix.Waitid(unix.P_ALL, 0, &info, flags, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return
		case errors.Is(err, unix.EINVAL):
			flags &^= unix.WALL // a kernel older than 4.7
			continue
		case err != nil:
			continue // EINTR
		}
		t.mu.Lock()
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		if err == nil && pid == t.raider && !t.exited {
			t.exitLocked(ws)
		}
		t.mu.Unlock()
	}
}

// killDescendants kills what descends from the shim at this moment. All are stopped
// first: processes that fork faster than they are killed would never be caught.
func (t *tree) killDescendants() {
	found := make(map[int]int) // pid to parent
	for {
		before := len(found)
		collect(os.Getpid(), found, func(pid, parent int) { signalChild(pid, parent, unix.SIGSTOP) })
		if len(found) == before {
			break
		}
	}
	for pid, parent := range found {
		signalChild(pid, parent, unix.SIGKILL)
	}
}

// collect adds the descendants of pid to found and calls newly for each that is new.
func collect(pid int, found map[int]int, newly func(pid, parent int)) {
	for _, child := range children(pid) {
		if _, ok := found[child]; !ok {
			found[child] = pid
			newly(child, pid)
		}
		collect(child, found, newly)
	}
}

// signalChild signals a process if it is still the child of parent, or was left to the
// shim since: its number may have been given to another process.
func signalChild(pid, parent int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			_ = unix.Kill(pid, sig) // a kernel or a sandbox without pidfds
		}
		return
	}
	defer func() { _ = unix.Close(fd) }()
	st, ok := readStat(strconv.Itoa(pid))
	if ok && (st.parent == parent || st.parent == os.Getpid()) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// children are the pids of a process's children, of all its threads.
func children(pid int) []int {
	base := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	var out []int
	for _, th := range threads {
		text, err := os.ReadFile(base + th.Name() + "/children") //nolint:gosec // a number
		if errors.Is(err, os.ErrNotExist) {
			if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(unix.Gettid()) + "/children"); err != nil {
				return scanChildren(pid) // a kernel without these files
			}
			continue // the thread has ended
		}
		for f := range bytes.FieldsSeq(text) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// scanChildren finds a process's children among all processes.
func scanChildren(pid int) []int {
	var out []int
	for _, name := range processes() {
		if st, ok := readStat(name); ok && st.parent == pid {
			n, _ := strconv.Atoi(name)
			out = append(out, n)
		}
	}
	return out
}

// dup2 exists on every architecture only as dup3.
func dup2(from, to int) error { return unix.Dup3(from, to, unix.O_CLOEXEC) }
