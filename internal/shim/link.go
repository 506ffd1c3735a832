//go:build unix

package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// readyTimeout is what a shim gets to come up ahead of need, on a host that swaps.
const readyTimeout = 10 * time.Second

// link is a shim process that has been started, with the worker's ends of its pipes.
type link struct {
	proc    *os.Process
	stdin   *os.File
	stdout  *os.File
	stderr  *os.File
	control *os.File
	reports *os.File
	inodes  []uint64 // of stdout and stderr
}

// launch starts a shim that waits for its start command.
func launch(exe []string, hold *os.File) (*link, error) {
	if len(exe) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the own executable: %w", err)
		}
		exe = []string{self, "shim"}
	}
	path, err := exec.LookPath(exe[0])
	if err != nil {
		return nil, fmt.Errorf("find the shim: %w", err)
	}
	var all, theirs []*os.File
	pair := func(shimReads bool) (ours *os.File) {
		if err != nil {
			return nil
		}
		var r, w *os.File
		if r, w, err = os.Pipe(); err != nil {
			return nil
		}
		all = append(all, r, w)
		if shimReads {
			theirs = append(theirs, r)
			return w
		}
		theirs = append(theirs, w)
		return r
	}
	l := &link{}
	l.stdin, l.stdout, l.stderr = pair(true), pair(false), pair(false)
	l.control, l.reports = pair(true), pair(false)
	closeAll := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for _, f := range theirs {
		if err == nil {
			// Stdout and stderr become the raider's, which expects that they block; and the shim
			// wakes up sooner from a read that blocks than from a poll.
			err = unix.SetNonblock(int(f.Fd()), false)
		}
	}
	for _, f := range []*os.File{l.stdout, l.stderr} {
		if err == nil {
			var st unix.Stat_t
			err = fstat(f, &st)
			l.inodes = append(l.inodes, st.Ino)
		}
	}
	if err != nil {
		closeAll(all)
		return nil, fmt.Errorf("make the shim's pipes: %w", err)
	}
	files := theirs
	if hold != nil {
		files = append(slices.Clip(files), hold)
	}
	// An empty environment: it is none of the shim's business, and the raider could read it.
	l.proc, err = os.StartProcess(path, exe, &os.ProcAttr{Env: []string{}, Files: files, Sys: shimAttr()})
	closeAll(theirs)
	if err != nil {
		closeAll([]*os.File{l.stdin, l.stdout, l.stderr, l.control, l.reports})
		return nil, fmt.Errorf("start the shim: %w", err)
	}
	return l, nil
}

// fstat looks at a file without making it block, as its Fd method may.
func fstat(f *os.File, st *unix.Stat_t) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), st) }); cerr != nil {
		return cerr
	}
	return err
}

// ready waits until the shim waits for its start command, readyTimeout at most.
func (l *link) ready() error {
	if err := l.reports.SetReadDeadline(time.Now().Add(readyTimeout)); err != nil {
		return fmt.Errorf("wait for the shim: %w", err)
	}
	kind, _, err := readFrame(l.reports)
	if err != nil || kind != repReady {
		return fmt.Errorf("wait for the shim: %w", errors.Join(errNoAnswer, err))
	}
	if err := l.reports.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for the shim: %w", err)
	}
	return nil
}

// drop ends a shim that was never told to start anything.
func (l *link) drop() {
	for _, f := range []*os.File{l.control, l.stdin, l.stdout, l.stderr, l.reports} {
		_ = f.Close()
	}
	_ = l.proc.Kill() // it has no tree yet
	_, _ = l.proc.Wait()
}
