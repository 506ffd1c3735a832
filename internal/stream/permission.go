//go:build unix

package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// envSocket tells a command where it can ask.
	envSocket = "RAIDERFLEET_PERMISSION_SOCKET"
	// maxSocketPath is the longest path of a socket that every system takes (108 bytes on
	// Linux, 104 elsewhere, with the NUL at the end).
	maxSocketPath = 103
	// maxQuestionBytes is the longest line on the socket.
	maxQuestionBytes = 1 << 20
	// maxConnections is how many connections to the socket may be open; one more is closed.
	maxConnections = 64
	// maxQuestions is how many questions of a run may be open; one more is refused.
	maxQuestions = 64
)

// asker decides about a question. It must return when ctx ends.
type asker func(ctx context.Context, q question) decision

// permissionSocket is where the command of one run asks.
type permissionSocket struct {
	dir, path string
	listener  *net.UnixListener
	ask       asker
	log       *slog.Logger
	cancel    context.CancelFunc
	places    chan struct{} // one value for each open question
	work      sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[*net.UnixConn]bool
}

// The socket of a run is socketName in a directory that begins with socketPrefix.
const (
	socketPrefix = "rf-"
	socketName   = "ask"
)

// openSocket makes the socket of a run, in a fresh directory that only its owner may enter.
// Questions that are open when ctx ends are refused.
func openSocket(ctx context.Context, log *slog.Logger, ask asker) (*permissionSocket, error) {
	s := &permissionSocket{ask: ask, log: log, places: make(chan struct{}, maxQuestions), conns: map[*net.UnixConn]bool{}}
	var err error
	// A long TMPDIR leaves no room for a socket's name.
	for _, in := range socketDirs() {
		if s.dir, err = os.MkdirTemp(in, socketPrefix); err != nil {
			continue
		}
		if s.path = filepath.Join(s.dir, socketName); len(s.path) <= maxSocketPath {
			break
		}
		_ = os.Remove(s.dir) // it is empty
		err = fmt.Errorf("%s is too long for the path of a socket", s.path)
	}
	if err != nil {
		return nil, fmt.Errorf("make the permission socket: %w", err)
	}
	s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err == nil {
		if err = os.Chmod(s.path, 0o600); err != nil {
			_ = s.listener.Close() // never used
		}
	}
	if err != nil {
		_ = os.RemoveAll(s.dir)
		return nil, fmt.Errorf("make the permission socket: %w", err)
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.work.Go(func() { s.accept(ctx) })
	return s, nil
}

// close refuses what is open, and returns when nothing of the socket is left.
func (s *permissionSocket) close() {
	s.cancel()
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close() // nobody is there to read more
	}
	s.mu.Unlock()
	s.work.Wait()
	if err := os.RemoveAll(s.dir); err != nil {
		s.log.Warn("permission socket not removed", "error", err)
	}
}

func (s *permissionSocket) accept(ctx context.Context) {
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.mu.Lock()
		refused := len(s.conns) >= maxConnections || ctx.Err() != nil
		if !refused {
			s.conns[c] = true
		}
		s.mu.Unlock()
		if refused {
			_ = c.Close() // which refuses
			continue
		}
		s.work.Go(func() {
			s.serve(ctx, c)
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			_ = c.Close() // all is answered, or nobody is there
		})
	}
}

// serve answers the questions of one connection, each when it is decided. It returns when
// the asker has gone, or has said all and has all answers.
func (s *permissionSocket) serve(ctx context.Context, c *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &answers{c: c}
	var open, watching sync.WaitGroup
	in := newLineReader(c, maxQuestionBytes)
	for {
		line, whole, err := in.next()
		if err != nil {
			break
		}
		q, problem := parseQuestion(line)
		if !whole {
			problem = "the line is too long"
		}
		if problem != "" {
			w.write(refusal(q.ID, problem))
			continue
		}
		select {
		case s.places <- struct{}{}:
			open.Go(func() {
				d := s.ask(ctx, q)
				<-s.places
				w.write(d)
			})
		default:
			w.write(refusal(q.ID, "too many questions are open"))
		}
	}
	// The end of what it says is not the end of the asker: a shell closes its side of the
	// pipe first. Only when both sides are closed nobody waits any more.
	watching.Go(func() {
		untilHangUp(c)
		cancel()
	})
	open.Wait()
	_ = c.Close() // ends the watch
	watching.Wait()
}

// untilHangUp returns when the other side has closed the connection for both directions,
// or it is closed here.
func untilHangUp(c *net.UnixConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		polled := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // a descriptor
		n, err := unix.Poll(polled, 0)
		return err == nil && n > 0 && polled[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
}

// answers writes decisions, each a line of its own.
type answers struct {
	c  *net.UnixConn
	mu sync.Mutex // one line at a time
}

func (a *answers) write(d decision) {
	line, err := json.Marshal(d)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.c.Write(append(line, '\n')) // an asker that has gone is not allowed anything
}
