//go:build unix

package shim

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// errPast refuses a start.
var errPast = errors.New("the deadline has passed")

// tree is the shim's side of a raider's process tree.
type tree struct {
	raider   int // pid and process group
	deadline atomic.Int64
	dying    chan struct{} // closed when the tree is to be killed
	dyingOne sync.Once

	alarm       *alarm
	stdin       *os.File // from the worker
	raiderStdin *os.File // on to the raider
	reports     io.Writer

	mu     sync.Mutex // guards the fields below, the alarm, and that a reaped raider is not signalled
	exited bool
	late   bool // killed because the deadline passed
}

// report tells the worker. One that has died is not told.
func (t *tree) report(kind byte, payload ...byte) {
	_, _ = t.reports.Write(newFrame(kind, payload...))
}

// kill lets the tree be killed; it doesn't wait.
func (t *tree) kill() { t.dyingOne.Do(func() { close(t.dying) }) }

func (t *tree) killed() bool {
	select {
	case <-t.dying:
		return true
	default:
		return false
	}
}

// expired says whether the deadline has passed, and if so has the tree killed: from then
// on no move of the deadline counts.
func (t *tree) expired() bool {
	if int64(Now()) < t.deadline.Load() {
		return false
	}
	t.mu.Lock()
	t.late = t.late || !t.exited && !t.killed()
	t.mu.Unlock()
	t.kill()
	return true
}

// obey does what the worker commands, until its end of the pipe closes.
func (t *tree) obey(control io.Reader) {
	defer t.kill()
	for {
		kind, payload, err := readFrame(control)
		if err != nil {
			return
		}
		switch {
		case kind == cmdDeadline && len(payload) == 8:
			if t.expired() {
				return
			}
			t.mu.Lock()
			t.deadline.Store(int64(binary.BigEndian.Uint64(payload))) //nolint:gosec // was an int64
			t.setAlarmLocked()
			t.mu.Unlock()
		case kind == cmdSignal && len(payload) == 1:
			t.signal(unix.Signal(payload[0]))
		default: // cmdKill, and what no worker of ours writes
			return
		}
	}
}

// signal sends sig to the raider's process group. Once the raider has been reaped the
// number may belong to somebody else.
func (t *tree) signal(sig unix.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.exited {
		_ = unix.Kill(-t.raider, sig)
	}
}

// watchDeadline has the tree killed when the deadline passes.
func (t *tree) watchDeadline() {
	for !t.expired() {
		t.mu.Lock()
		t.setAlarmLocked()
		t.mu.Unlock()
		t.alarm.wait()
	}
}

// setAlarmLocked sets the alarm to the deadline as it is: an older one may have been set
// last otherwise, and the alarm would come too late.
func (t *tree) setAlarmLocked() { t.alarm.set(Boottime(t.deadline.Load())) }

// feed hands the worker's bytes on to the raider, each chunk only before the deadline.
func (t *tree) feed() {
	defer func() { _ = t.raiderStdin.Close() }()
	// The worker's next write then fails instead of filling a pipe that nobody reads.
	defer func() { _ = t.stdin.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := t.stdin.Read(buf)
		if n > 0 {
			if t.expired() || t.killed() {
				return
			}
			if _, err := t.raiderStdin.Write(buf[:n]); err != nil {
				return // it has closed its stdin
			}
		}
		if err != nil {
			return
		}
	}
}

// killWhenTold kills the tree once it is to die, again and again: a process that forks
// while it is looked for is found the next time. The process ends when it succeeded.
func (t *tree) killWhenTold() {
	<-t.dying
	_ = t.raiderStdin.SetWriteDeadline(time.Unix(1, 0)) // a chunk that waits in feed goes no further
	t.signal(unix.SIGKILL)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		t.killDescendants()
		time.Sleep(wait) //nolint:forbidigo // ends with the process
	}
}

// exitLocked notes how the raider ended and reports it. Its tree ends with it.
func (t *tree) exitLocked(ws unix.WaitStatus) {
	t.exited = true
	var sig byte
	code := ws.ExitStatus()
	if ws.Signaled() {
		sig = byte(ws.Signal()) //nolint:gosec // at most 64
	}
	var late byte
	if t.late {
		late = 1
	}
	t.report(repExited, append(be32(code), sig, late)...)
	t.kill()
}

func be32(n int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(int32(n))) //nolint:gosec // a pid or an exit code
}
