package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/internal/settings"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

const (
	// startTimeout bounds a raider's answers to initialize, session/new and session/load:
	// an agent that is fetched by a package runner takes its time at first.
	startTimeout = 2 * time.Minute
	// startTries is how often a raider is started that ends before it has opened the session:
	// what it needs may be locked or not yet there. startPause is before the second try, and
	// four times that before the next.
	startTries = 3
	startPause = 250 * time.Millisecond
	// stopGrace lies between closing a raider's stdin, SIGTERM and SIGKILL.
	stopGrace = 2 * time.Second
	// tailLines and tailBytes bound the stderr that an error shows.
	tailLines = 10
	tailBytes = 4096
)

// process is a raider process that serves one session.
type process struct {
	l       *lane
	sp      *shim.Process
	conn    *rpc.Conn
	session subjects.SessionID
	meta    subjects.SessionMeta // when it was opened
	dir     string               // where it works
	inner   string               // the id under which the process knows the session
	swallow atomic.Bool
	stale   atomic.Bool  // its session in the agent was reset: it takes no further run
	prompt  atomic.Value // subjects.PromptID of the run that it served last
	tail    *tail
	calls   clientCalls
	host    host
	choices choices
	opened  chan struct{} // closed when it has been opened, or can't be
	isOpen  atomic.Bool   // it has been
	readers sync.WaitGroup
	stopped chan struct{} // closed when the readers have ended

	// Set when it is opened, and used by the run that did: what the agent is given of the
	// conversation that it could not load, whether it takes resources, and what notes its
	// session then.
	carried string
	cut     bool // carried is not all
	embeds  bool
	settle  func(*run)

	writing sync.Mutex // held while agent is stored

	mu    sync.Mutex // guards the rest
	agent subjects.SessionAgent
	// wishes are the session's, read when the process starts.
	wishes []subjects.Wish
}

// processFor returns the raider process of the run's session: the one that is there, or
// a new one after the lane's earlier one has gone.
func (l *lane) processFor(r *run) (*process, error) {
	meta := r.meta
	l.mu.Lock()
	p := l.proc
	l.mu.Unlock()
	if p != nil {
		if p.session == r.header.Session && p.alive() && !p.stale.Load() {
			p.prompt.Store(r.prompt())
			p.tail.begin()
			p.calls.from(r.header.Origin)
			l.tellSpawned(r, p, true)
			if err := p.catchUp(r); err != nil {
				return nil, p.explain(err)
			}
			return p, nil
		}
		l.endProcess(nil) // a slot keeps at most one
	}
	l.setState("starting")
	pause := startPause
	for try := 1; ; try++ {
		p, err := l.start(r, meta)
		if err != nil {
			return nil, err
		}
		err = p.open(r, meta)
		p.isOpen.Store(err == nil)
		close(p.opened)
		if err == nil {
			l.tellSpawned(r, p, false)
			return p, nil
		}
		_, answered := errors.AsType[*rpc.Error](err)
		again := !answered && p.ending() && !p.missedDeadline()
		err = p.explain(err)
		l.endProcess(errReleased)
		// What only opens it leaves that to the prompt, which may wait for it.
		if !again || try == startTries || r.header.Kind == subjects.KindOpen || !r.pause(pause) {
			return nil, err
		}
		pause *= 4
	}
}

// pause waits for d; false when the run is over before.
func (r *run) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// directory is where the raider works for a session in the directory cwd, and whether that
// is there.
func (r *Raider) directory(cwd string) (dir string, there bool) {
	isDir := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	}
	if r.Cwd != "" {
		return r.Cwd, isDir(r.Cwd)
	}
	if !isDir(cwd) && r.FallbackCwd != "" {
		return r.FallbackCwd, isDir(r.FallbackCwd)
	}
	return cwd, isDir(cwd)
}

// start starts the raider under a shim.
func (l *lane) start(r *run, meta subjects.SessionMeta) (*process, error) {
	dir, there := l.raider.directory(meta.Cwd)
	if !there {
		return nil, refusal{fmt.Sprintf("directory %s does not exist on worker %s", dir, l.w.c.Name)}
	}
	if err := l.hold(r.ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	deadline := l.lease
	l.mu.Unlock()
	sp, err := shim.Start(r.ctx, shim.Spec{
		Exe: l.w.c.Exe, Command: l.raider.Command, Dir: dir, Env: l.raider.environment(), Deadline: deadline,
		Hold: l.w.lock.file, Pool: l.w.shims,
	})
	if err != nil {
		return nil, fmt.Errorf("raider %s could not be started: %w", l.raider.Name, err)
	}
	p := &process{l: l, sp: sp, session: meta.Session, meta: meta, dir: dir, tail: &tail{}, opened: make(chan struct{}), stopped: make(chan struct{})}
	p.prompt.Store(r.prompt())
	p.calls.from(r.header.Origin)
	p.conn = rpc.NewConn(sp.Stdout(), sp.Stdin(), p, rpc.Options{
		SkipNoise: func([]byte) {
			// Its text may hold anything: only that it was there is logged.
			l.w.log.Debug("raider wrote a line that is no message", "raider", string(l.raider.Name))
		},
		Logger: l.w.log,
	})
	l.mu.Lock()
	l.proc = p
	lease := l.lease
	l.mu.Unlock()
	p.setDeadline(lease) // it may have been renewed in between
	if l.ctx.Err() != nil {
		p.kill() // lost in between: keep has not seen this process
	}
	p.readers.Go(func() { _ = p.conn.Run(context.Background()) })
	p.readers.Go(p.readStderr)
	go func() { p.readers.Wait(); close(p.stopped) }()
	return p, nil
}

// open makes the session inside the agent: loaded where it has it, else new.
func (p *process) open(r *run, meta subjects.SessionMeta) error {
	ctx, cancel := context.WithTimeout(r.ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(r.ctx, p.kill)
	defer stop()
	// Read while the process starts.
	reading := make(chan error, 1)
	go func() { reading <- p.recall() }() // ends with the lane; waited for below
	hello := fmt.Sprintf(`{"protocolVersion":1,"clientCapabilities":%s,"clientInfo":{"name":"raiderfleet","version":%s}}`,
		p.l.raider.clientCapabilities(r.header.Client), quote(p.l.w.c.Version))
	answer, err := p.conn.Call(ctx, "initialize", json.RawMessage(hello))
	readErr := <-reading
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if readErr != nil {
		return fmt.Errorf("read the agent's session: %w", readErr)
	}
	p.l.w.learn(p.l.raider.Name, answer)
	agent := p.known()
	var caps struct {
		Agent struct {
			LoadSession bool `json:"loadSession"`
			Session     struct {
				Resume json.RawMessage `json:"resume"`
			} `json:"sessionCapabilities"`
			Prompt struct {
				Embedded bool `json:"embeddedContext"`
			} `json:"promptCapabilities"`
		} `json:"agentCapabilities"`
	}
	_ = json.Unmarshal(answer, &caps) // an agent that says nothing can nothing
	mcp := meta.MCPServers
	if len(mcp) == 0 {
		mcp = json.RawMessage("[]")
	}
	where := map[string]any{"cwd": p.dir, "mcpServers": mcp}
	if len(meta.AdditionalDirectories) > 0 {
		where["additionalDirectories"] = meta.AdditionalDirectories
	}
	if agent.InnerID != "" {
		err := errors.New("the agent can't load sessions")
		where["sessionId"] = agent.InnerID
		p.inner = agent.InnerID
		if rawjson.IsObject(caps.Agent.Session.Resume) {
			answer, err = p.conn.CallMarked(ctx, "session/resume", where, p.answered) // without a replay that nobody needs
		}
		if err != nil && caps.Agent.LoadSession && ctx.Err() == nil {
			p.swallow.Store(true) // its replay is in the transcript already
			answer, err = p.conn.CallMarked(ctx, "session/load", where, p.answered)
			p.swallow.Store(false)
		}
		delete(where, "sessionId")
		if err == nil {
			p.learnt(answer)
			if err := p.restore(ctx, r, agent.Settings, p.wished()); err != nil {
				return err
			}
			if agent.Home == p.l.w.c.Name && !p.news(agent) {
				return nil
			}
			// What it learns from now on is here.
			p.bind(r, agent.InnerID, caps.Agent.LoadSession, false)
			return nil
		}
		if ctx.Err() != nil || !p.alive() {
			return fmt.Errorf("session/load: %w", err)
		}
		if c, err := r.soFar(p.l.raider.TranscriptBudget); err == nil {
			p.carried, p.cut = c.text(), c.cut
		}
		p.sessionLost(r, meta, err)
	}
	answer, err = p.conn.CallMarked(ctx, "session/new", where, p.answered)
	if err != nil {
		return fmt.Errorf("session/new: %w", err)
	}
	id, _ := rawjson.Get(answer, "sessionId")
	if json.Unmarshal(id, &p.inner) != nil || p.inner == "" {
		return errors.New("session/new: the agent gave no session id")
	}
	p.learnt(answer)
	p.l.w.learnSettings(p.l.raider.Name, settings.Of(answer))
	if err := p.restore(ctx, r, agent.Settings, p.wished()); err != nil {
		return err
	}
	p.embeds = caps.Agent.Prompt.Embedded
	p.settle = func(r *run) { p.bind(r, p.inner, caps.Agent.LoadSession, true) }
	if p.carried == "" {
		p.settled(r)
	}
	return nil
}

// explain adds to a start error how the process ended, if it has.
func (p *process) explain(err error) error {
	// Reading and writing fail in several ways when the other side has gone.
	if _, answered := errors.AsType[*rpc.Error](err); !answered && (errors.Is(err, rpc.ErrClosed) || p.ending()) {
		if p.missedDeadline() {
			return errLeaseLost
		}
		return fmt.Errorf("raider %s: %s", p.l.raider.Name, p.epitaph())
	}
	return fmt.Errorf("raider %s: %w", p.l.raider.Name, err)
}

// ending says whether the process has ended, or does in a moment: its pipes fail a little
// before its exit is known.
func (p *process) ending() bool {
	timer := time.NewTimer(stopGrace / 10)
	defer timer.Stop()
	select {
	case <-p.sp.Exited():
		return true
	case <-timer.C:
		return !p.alive()
	}
}

func (p *process) alive() bool {
	select {
	case <-p.sp.Exited():
		return false
	case <-p.conn.Done():
		return false
	default:
		return true
	}
}

func (p *process) setDeadline(d shim.Boottime) {
	p.host.setDeadline(d)
	if err := p.sp.SetDeadline(d); err != nil && p.alive() {
		p.l.w.log.Warn("shim deadline not moved", "raider", string(p.l.raider.Name), "error", err)
	}
}

func (p *process) kill() {
	p.host.kill()
	p.sp.Kill()
}

// epitaph says how the process ended, with its last lines of stderr.
func (p *process) epitaph() string {
	how := "the raider closed its output"
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.sp.Exited():
		how = "the raider ended: " + p.sp.Exit().String()
		select { // its last words are read a moment after its end is known
		case <-p.stopped:
		case <-timer.C:
		}
	case <-timer.C:
	}
	if last := p.tail.text(); last != "" {
		how += "\n" + last
	}
	return how
}

// missedDeadline says whether the shim killed the raider because the lease had run out.
func (p *process) missedDeadline() bool {
	select {
	case <-p.sp.Exited():
		return p.sp.Exit().Deadline
	default:
		return false
	}
}

// endProcess ends the lane's raider process and returns when its tree is gone. A lost
// lane kills at once; otherwise stdin is closed, then TERM, then KILL.
func (l *lane) endProcess(cause error) {
	l.mu.Lock()
	p := l.proc
	l.mu.Unlock()
	if p == nil {
		return
	}
	if l.ctx.Err() != nil || cause != nil {
		p.kill()
	} else {
		stopKill := context.AfterFunc(l.ctx, p.kill) // a lease that is lost meanwhile
		p.sp.Stop(stopGrace)
		stopKill()
	}
	<-p.sp.Gone()
	_ = p.conn.Close()
	p.host.end()
	<-p.stopped
	p.calls.open.Wait()
	l.mu.Lock()
	l.proc = nil
	l.mu.Unlock()
}

// procEnded is closed when the lane's process has ended; nil when there is none.
func (l *lane) procEnded() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proc == nil {
		return nil
	}
	return l.proc.sp.Exited()
}

// HandleNotification takes what the raider sends without waiting for an answer.
func (p *process) HandleNotification(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
	if method == innerNotification && p.l.raider.Kind == KindStream {
		p.rebind(params) //nolint:contextcheck // the lane's life bounds it
		return
	}
	if method != "session/update" {
		p.tellClient(method, params)
		return
	}
	update, _ := rawjson.Get(params, "update")
	p.overhear(update) //nolint:contextcheck // the lane's life bounds it
	if p.swallow.Load() {
		return
	}
	body, err := rawjson.Set(params, "sessionId", quote(string(p.session)))
	if err != nil || !rawjson.IsObject(update) {
		p.l.w.log.Warn("raider sent an update that is no object", "raider", string(p.l.raider.Name))
		return
	}
	prompt, tell := p.l.current(p.session)
	var stored func(uint64)
	if tell != nil {
		tell.tell(p.l, body) //nolint:contextcheck // the lane's life bounds it
		stored = tell.reached
	}
	// Blocks while NATS is slower than the raider: its pipe fills and it waits.
	_ = p.l.out.append(p.session, subjects.EventUpdate, prompt, body, stored) // fails only with the lane
}

// current is the prompt that runs for the session; empty between turns.
func (l *lane) current(s subjects.SessionID) (subjects.PromptID, *story) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run == nil || l.run.header.Session != s {
		return "", nil
	}
	if l.run.told {
		return "", nil // between two turns
	}
	return l.run.header.Prompt, l.run.story
}

// HandleRequest answers what the raider asks for.
func (p *process) HandleRequest(_ context.Context, _ *rpc.Conn, req *rpc.Request) {
	if req.Method != "session/request_permission" {
		p.askClient(req)
		return
	}
	p.l.mu.Lock()
	r := p.l.run
	over := r == nil || r.header.Session != p.session || r.told
	p.l.mu.Unlock()
	if over {
		_ = req.Reply(json.RawMessage(outcomeCancelled))
		return
	}
	r.ask(req)
}

// signalGroup sends sig to the raider's process group.
func (p *process) signalGroup(sig syscall.Signal) { _ = p.sp.Signal(sig) } // it may have ended
