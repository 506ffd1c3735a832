//go:build unix

package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"raiderfleet/internal/rpc"
)

// freshPrefix begins the id of a session whose inner id is not known.
const freshPrefix = "fresh-"

// errCancelled is the cause of a turn's context when it was cancelled.
var errCancelled = errors.New("stream: turn cancelled")

// agent answers one ACP connection. It implements rpc.Handler.
type agent struct {
	config    Config
	raiderBin string // replaces the hall's own raider; empty leaves it
	stderr    io.Writer
	log       *slog.Logger
	stopping  chan struct{} // closed when the process is to end
	work      sync.WaitGroup

	lingerGrace, stopGrace, drainGrace time.Duration // the constants, shorter in tests

	mu       sync.Mutex // guards the rest
	ready    bool       // initialized
	ended    bool       // stopping is closed: no more turns
	sessions map[string]*session
}

// session is one that was made or loaded in this process.
type session struct {
	id  string // as the worker knows it
	cwd string

	// Guarded by agent.mu.
	inner  string // the raider's own id, empty before it is known
	run    *run   // the one that is on
	cancel context.CancelCauseFunc
}

func newAgent(c Config, raiderBin string, stderr io.Writer, log *slog.Logger) *agent {
	return &agent{
		config: c, raiderBin: raiderBin, stderr: stderr, log: log,
		lingerGrace: lingerGrace, stopGrace: stopGrace, drainGrace: drainGrace,
		stopping: make(chan struct{}), sessions: make(map[string]*session),
	}
}

// HandleRequest implements rpc.Handler.
func (a *agent) HandleRequest(ctx context.Context, c *rpc.Conn, r *rpc.Request) {
	a.mu.Lock()
	ready := a.ready
	a.mu.Unlock()
	switch {
	case r.Method == "initialize":
		a.initialize(r)
	case !ready:
		a.fail(r, rpc.CodeInvalidRequest, "initialize comes first")
	case r.Method == "session/new":
		a.openSession(r, "")
	case r.Method == "session/load":
		a.loadSession(r)
	case r.Method == "session/prompt":
		a.prompt(ctx, c, r)
	default:
		a.fail(r, rpc.CodeMethodNotFound, "method not found: "+r.Method)
	}
}

// Capabilities is what a stream raider behind its adapter can do: its agentCapabilities, JSON.
const Capabilities = `{"loadSession":true,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":true}}`

// HandleNotification implements rpc.Handler.
func (a *agent) HandleNotification(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if method != "session/cancel" || json.Unmarshal(params, &p) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[p.SessionID]; s != nil && s.cancel != nil {
		s.cancel(errCancelled)
	}
}

func (a *agent) initialize(r *rpc.Request) {
	a.mu.Lock()
	a.ready = true
	a.mu.Unlock()
	a.reply(r, json.RawMessage(`{"protocolVersion":1,"agentInfo":{"name":"raiderfleet-stream","version":"1"},`+
		`"agentCapabilities":`+Capabilities+`,"authMethods":[]}`))
}

// loadSession takes the id that an earlier process was told by the command, or gave out
// itself in a session whose command never told one.
func (a *agent) loadSession(r *rpc.Request) {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil || p.SessionID == "" {
		a.fail(r, rpc.CodeInvalidParams, "sessionId is missing")
		return
	}
	a.openSession(r, p.SessionID)
}

// openSession enters a session, a new one for an empty id.
func (a *agent) openSession(r *rpc.Request, id string) {
	var p struct {
		Cwd string `json:"cwd"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil || !filepath.IsAbs(p.Cwd) {
		a.fail(r, rpc.CodeInvalidParams, "cwd must be an absolute path")
		return
	}
	s := &session{id: id, cwd: p.Cwd}
	switch {
	case id == "":
		s.id = freshPrefix + rand.Text()
	case !strings.HasPrefix(id, freshPrefix):
		s.inner = id
	}
	a.mu.Lock()
	old := a.sessions[s.id]
	busy := old != nil && old.run != nil
	if !busy {
		a.sessions[s.id] = s
		if old != nil && s.inner == "" {
			s.inner = old.inner
		}
	}
	a.mu.Unlock()
	switch {
	case busy:
		a.fail(r, rpc.CodeInvalidRequest, "a prompt is running in this session")
	case id == "":
		a.reply(r, map[string]string{"sessionId": s.id})
	default:
		a.reply(r, struct{}{})
	}
}

// prompt enters the turn before the next message is read, so that a cancel right behind it
// finds it.
func (a *agent) prompt(ctx context.Context, c *rpc.Conn, r *rpc.Request) {
	var p struct {
		SessionID string          `json:"sessionId"`
		Prompt    json.RawMessage `json:"prompt"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		a.fail(r, rpc.CodeInvalidParams, "not a prompt")
		return
	}
	text, err := promptText(p.Prompt)
	if err != nil {
		a.fail(r, rpc.CodeInvalidParams, err.Error())
		return
	}
	a.mu.Lock()
	s := a.sessions[p.SessionID]
	if s == nil || s.run != nil || a.ended {
		unknown := s == nil
		a.mu.Unlock()
		if unknown {
			a.fail(r, rpc.CodeNotFound, "unknown session")
			return
		}
		a.fail(r, rpc.CodeInvalidRequest, "a prompt is running in this session")
		return
	}
	turn := newRun(a, c, s, text)
	turnCtx, cancel := context.WithCancelCause(ctx)
	s.run, s.cancel = turn, cancel
	a.work.Go(func() { a.turn(turnCtx, turn, r) })
	a.mu.Unlock()
}

// turn runs the command for a prompt and answers it.
func (a *agent) turn(ctx context.Context, turn *run, r *rpc.Request) {
	s := turn.session
	stop := context.AfterFunc(r.Context(), func() { //nolint:contextcheck // the request ends by its own cancellation
		a.mu.Lock()
		defer a.mu.Unlock()
		if s.run == turn {
			s.cancel(errCancelled)
		}
	})
	end := turn.perform(ctx)
	stop()
	a.mu.Lock()
	cancel := s.cancel
	s.run, s.cancel = nil, nil
	a.mu.Unlock()
	cancel(nil)
	err := error(nil)
	if end.fault != nil {
		err = r.ReplyError(end.fault)
	} else {
		err = r.Reply(end.result)
	}
	if err != nil {
		a.log.Debug("answer not sent", "error", err)
	}
}

// innerOf is the raider's own id of a session.
func (a *agent) innerOf(s *session) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return s.inner
}

// setInner reports whether the id is another than before.
func (a *agent) setInner(s *session, id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.inner == id {
		return false
	}
	s.inner = id
	return true
}

// signal passes a signal on to the commands that run; false when none does. A run that has
// not come to its command is cancelled.
func (a *agent) signal(sig syscall.Signal) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := false
	for _, s := range a.sessions {
		if s.run == nil {
			continue
		}
		found = true
		if !s.run.signal(sig) {
			s.cancel(errCancelled)
		}
	}
	return found
}

// stop ends the commands that run and returns when they have ended.
func (a *agent) stop() {
	a.mu.Lock()
	if !a.ended {
		a.ended = true
		close(a.stopping)
	}
	a.mu.Unlock()
	a.work.Wait()
}

func (a *agent) reply(r *rpc.Request, result any) {
	if err := r.Reply(result); err != nil {
		a.log.Debug("answer not sent", "error", err)
	}
}

func (a *agent) fail(r *rpc.Request, code int64, text string) {
	if err := r.ReplyError(&rpc.Error{Code: code, Message: text}); err != nil {
		a.log.Debug("answer not sent", "error", err)
	}
}
