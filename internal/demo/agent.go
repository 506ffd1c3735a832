package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
)

// errCancelled is the cause of a turn's context when it was cancelled.
var errCancelled = errors.New("demo: turn cancelled")

// agent answers one ACP connection.
type agent struct {
	store   *store
	journal journal
	stdout  io.Writer // for noise
	log     *slog.Logger
	work    sync.WaitGroup
	setting sync.Mutex // held while a choice is made and stored

	mu          sync.Mutex // guards the rest
	initialized bool
	can         string // clientCapabilities
	sessions    map[string]*session
	running     map[*turn]context.CancelCauseFunc
}

// session is one that this process has created or loaded.
type session struct {
	id, cwd string
	busy    bool    // guarded by agent.mu
	chosen  choices // guarded by agent.mu
}

func newAgent(s *store, j journal, stdout io.Writer, log *slog.Logger) *agent {
	return &agent{
		store: s, journal: j, stdout: stdout, log: log,
		sessions: make(map[string]*session),
		running:  make(map[*turn]context.CancelCauseFunc),
	}
}

// HandleRequest implements rpc.Handler.
func (a *agent) HandleRequest(ctx context.Context, c *rpc.Conn, r *rpc.Request) {
	a.mu.Lock()
	ready := a.initialized
	a.mu.Unlock()
	switch {
	case r.Method == "initialize":
		a.initialize(r)
	case !ready:
		a.fail(r, rpc.CodeInvalidRequest, "initialize comes first")
	case r.Method == "session/new":
		a.work.Go(func() { a.newSession(r) })
	case r.Method == "session/load":
		a.work.Go(func() { a.loadSession(c, r) })
	case r.Method == "session/set_mode", r.Method == "session/set_config_option":
		a.work.Go(func() { a.set(r) })
	case r.Method == "session/prompt":
		a.prompt(ctx, c, r)
	default:
		a.fail(r, rpc.CodeMethodNotFound, "method not found: "+r.Method)
	}
}

// Capabilities is what the demo raider can do: its agentCapabilities, JSON.
const Capabilities = `{"loadSession":true,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":true}}`

// HandleNotification implements rpc.Handler.
func (a *agent) HandleNotification(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if method == "session/cancel" && json.Unmarshal(params, &p) == nil {
		a.cancel(p.SessionID)
	}
}

func (a *agent) initialize(r *rpc.Request) {
	a.mu.Lock()
	a.initialized = true
	can, _ := rawjson.Get(r.Params, "clientCapabilities")
	a.can = string(can)
	a.mu.Unlock()
	a.reply(r, json.RawMessage(`{"protocolVersion":1,"agentInfo":{"name":"raiderfleet-demo","version":"1"},`+
		`"agentCapabilities":`+Capabilities+`,"authMethods":[]}`))
}

func (a *agent) newSession(r *rpc.Request) {
	var p struct {
		Cwd string `json:"cwd"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil || !filepath.IsAbs(p.Cwd) {
		a.fail(r, rpc.CodeInvalidParams, "cwd must be an absolute path")
		return
	}
	s := &session{id: "demo-" + rand.Text(), cwd: p.Cwd, chosen: firstChoices()}
	if err := a.store.create(s.id, s.cwd); err != nil {
		a.log.Error("session not stored", "session", s.id, "error", err)
		a.fail(r, rpc.CodeInternal, "the session could not be stored")
		return
	}
	a.mu.Lock()
	a.sessions[s.id] = s
	a.mu.Unlock()
	a.reply(r, a.withSettings(map[string]any{"sessionId": s.id}, s.chosen))
}

func (a *agent) loadSession(c *rpc.Conn, r *rpc.Request) {
	var p struct {
		SessionID string `json:"sessionId"`
		Cwd       string `json:"cwd"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		a.fail(r, rpc.CodeInvalidParams, "sessionId is missing")
		return
	}
	entries, err := a.store.load(p.SessionID)
	if err != nil {
		if errors.Is(err, errNoSession) {
			a.unknown(r, p.SessionID)
			return
		}
		a.log.Error("session not read", "session", p.SessionID, "error", err)
		a.fail(r, rpc.CodeInternal, "the session could not be read")
		return
	}
	chosen := firstChoices()
	for _, e := range entries {
		switch {
		case e.Chosen != nil:
			chosen = *e.Chosen
		case e.Cwd != nil && p.Cwd == "":
			p.Cwd = *e.Cwd
		case e.Prompt != nil:
			err = notify(c, p.SessionID, chunk("user_message_chunk", *e.Prompt))
		case e.Answer != nil:
			err = notify(c, p.SessionID, chunk("agent_message_chunk", *e.Answer))
		}
		if err != nil {
			a.log.Warn("replay broke off", "session", p.SessionID, "error", err)
			return
		}
	}
	a.mu.Lock()
	if s := a.sessions[p.SessionID]; s != nil {
		s.cwd = p.Cwd
		chosen = s.chosen
	} else {
		a.sessions[p.SessionID] = &session{id: p.SessionID, cwd: p.Cwd, chosen: chosen}
	}
	a.mu.Unlock()
	a.reply(r, a.withSettings(map[string]any{}, chosen))
}

// prompt registers the turn before the next message is read, so that a cancel
// right behind it finds it.
func (a *agent) prompt(ctx context.Context, c *rpc.Conn, r *rpc.Request) {
	var p struct {
		SessionID string `json:"sessionId"`
		Prompt    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"prompt"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		a.fail(r, rpc.CodeInvalidParams, "not a prompt")
		return
	}
	var text strings.Builder
	for _, block := range p.Prompt {
		if block.Type == "text" {
			text.WriteString(block.Text)
		}
	}
	a.mu.Lock()
	s := a.sessions[p.SessionID]
	busy := s != nil && s.busy
	if s == nil || busy {
		a.mu.Unlock()
		if busy {
			a.fail(r, rpc.CodeInvalidRequest, "a prompt is running in this session")
			return
		}
		a.unknown(r, p.SessionID)
		return
	}
	s.busy = true
	t := &turn{
		voice: acpVoice{conn: c, session: s.id, stdout: a.stdout}, store: a.store, journal: a.journal,
		session: s.id, cwd: s.cwd, text: text.String(), can: a.can,
		chosen: func() string {
			a.mu.Lock()
			defer a.mu.Unlock()
			return s.chosen.String()
		},
	}
	turnCtx, cancel := context.WithCancelCause(ctx)
	a.running[t] = cancel
	a.mu.Unlock()

	stop := context.AfterFunc(r.Context(), func() { cancel(errCancelled) }) //nolint:contextcheck // the request ends by its own cancellation
	a.work.Go(func() {
		err := t.run(turnCtx)
		stop()
		cancelled := turnCtx.Err() != nil
		a.mu.Lock()
		delete(a.running, t)
		s.busy = false
		a.mu.Unlock()
		cancel(nil)
		var failure *failError
		switch {
		case cancelled:
			a.reply(r, json.RawMessage(`{"stopReason":"cancelled"}`))
		case errors.As(err, &failure):
			a.fail(r, rpc.CodeInternal, failure.text)
		case err != nil:
			a.fail(r, rpc.CodeInternal, err.Error())
		default:
			a.reply(r, json.RawMessage(`{"stopReason":"end_turn"}`))
		}
	})
}

// cancel cancels the turns of a session, or all for "", and counts them.
func (a *agent) cancel(session string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for t, cancel := range a.running {
		if session == "" || t.session == session {
			cancel(errCancelled)
			n++
		}
	}
	return n
}

// watch turns SIGINT into a cancel of what runs, or into the end of the process
// (stop, true) when nothing does.
func (a *agent) watch(ctx context.Context, signals <-chan os.Signal, stop func()) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-signals:
			if a.cancel("") == 0 {
				stop()
				return true
			}
		}
	}
}

// settle lets running turns end, then cancels them, and gives up on those that
// ignore it: the process is about to end.
func (a *agent) settle(grace time.Duration) {
	done := make(chan struct{})
	go func() {
		a.work.Wait()
		close(done)
	}()
	for range 2 {
		timer := time.NewTimer(grace)
		select {
		case <-done:
			timer.Stop()
			return
		case <-timer.C:
			a.cancel("")
		}
	}
}

func (a *agent) reply(r *rpc.Request, result any) {
	if err := r.Reply(result); err != nil {
		a.log.Warn("answer not sent", "error", err)
	}
}

func (a *agent) fail(r *rpc.Request, code int64, text string) {
	if err := r.ReplyError(&rpc.Error{Code: code, Message: text}); err != nil {
		a.log.Warn("answer not sent", "error", err)
	}
}

func (a *agent) unknown(r *rpc.Request, session string) {
	data, err := json.Marshal(map[string]string{"sessionId": session})
	if err != nil {
		data = nil
	}
	if err := r.ReplyError(&rpc.Error{Code: rpc.CodeNotFound, Message: "unknown session", Data: data}); err != nil {
		a.log.Warn("answer not sent", "error", err)
	}
}
