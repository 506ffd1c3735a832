package devfleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// readyFD is the descriptor on which a detached fleet says how its start went.
const readyFD = 3

// What a detached fleet says.
const (
	saidReady   = "ready"
	saidRunning = "running"
)

// maxLog is the size in bytes from which a detached fleet's log begins anew.
const maxLog = 8 << 20

// Detached says how to start a fleet that outlives its starter.
type Detached struct {
	// Command is the argv of a process that calls Announce.
	Command []string
}

// start starts the process in a session of its own, its output in a log file, and waits
// until it serves. ErrRunning when the directory is another's.
func (d Detached) start(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	logPath := filepath.Join(dir, LogName)
	log, err := openLog(logPath)
	if err != nil {
		return fmt.Errorf("log of the dev fleet: %w", err)
	}
	defer func() { _ = log.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the dev fleet: %w", err)
	}
	defer func() { _ = r.Close() }()
	// Not CommandContext: the fleet lives on.
	cmd := exec.Command(d.Command[0], d.Command[1:]...) //nolint:gosec,noctx // our own binary
	cmd.Dir = "/"                                       // it must not keep a directory of the starter in use
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start the dev fleet: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	said, err := io.ReadAll(io.LimitReader(r, 64<<10))
	stop()
	text := strings.TrimSpace(string(said))
	if err == nil && ctx.Err() == nil && text == saidReady {
		return cmd.Process.Release()
	}
	// It is no use, or too late. Mostly it ends by itself.
	if ctx.Err() != nil {
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("start the dev fleet: %w; its log: %s", ctx.Err(), logPath)
	case err != nil:
		return fmt.Errorf("start the dev fleet: %w; its log: %s", err, logPath)
	case text == saidRunning:
		return ErrRunning
	case text == "":
		return fmt.Errorf("start the dev fleet: it ended at once; its log: %s", logPath)
	default:
		return fmt.Errorf("start the dev fleet: %s", text)
	}
}

func openLog(path string) (*os.File, error) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600) //nolint:gosec // the user's own state directory
}

// Announcer is the other end, in the detached process.
type Announcer struct{ pipe *os.File }

// NewAnnouncer takes over the descriptor that Detached gave to this process.
func NewAnnouncer() *Announcer {
	syscall.CloseOnExec(readyFD)
	return &Announcer{pipe: os.NewFile(readyFD, "ready")}
}

// Ready tells the starter that the fleet serves.
func (a *Announcer) Ready() { a.say(saidReady) }

// Failed tells the starter why there is no fleet. After Ready it does nothing.
func (a *Announcer) Failed(err error) {
	if errors.Is(err, ErrRunning) {
		a.say(saidRunning)
		return
	}
	a.say(err.Error())
}

func (a *Announcer) say(text string) {
	if a.pipe == nil {
		return
	}
	_, _ = a.pipe.WriteString(text) // a starter that has gone needs no word
	_ = a.pipe.Close()
	a.pipe = nil
}
