package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

const (
	// probeAgain and probeSeldom are the pauses after a raider's agent could not be asked:
	// twice as long each time.
	probeAgain  = 2 * time.Second
	probeSeldom = 5 * time.Minute
	// maxAgent bounds what is published of an agent, in bytes.
	maxAgent = 32 << 10
)

// agents are what is known of the raiders' agents. The zero value knows nothing.
type agents struct {
	mu    sync.Mutex // guards known
	known map[subjects.Raider]subjects.Agent
}

func (a *agents) all() map[subjects.Raider]subjects.Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.known)
}

// learn notes what an agent answered to initialize, and has it told where it is new.
func (w *Worker) learn(name subjects.Raider, answer json.RawMessage) {
	var a subjects.Agent
	a.Capabilities, _ = rawjson.Get(answer, "agentCapabilities")
	a.Info, _ = rawjson.Get(answer, "agentInfo")
	a.AuthMethods, _ = rawjson.Get(answer, "authMethods")
	if len(a.Capabilities) == 0 {
		a.Capabilities = json.RawMessage(`{}`) // an agent that says nothing can nothing
	}
	if len(a.Capabilities)+len(a.Info)+len(a.AuthMethods) > maxAgent {
		w.log.Warn("what the agent says of itself is too large to be told", "raider", string(name))
		return
	}
	if w.agents.set(name, a) {
		signal(w.learnt)
	}
}

// learnSettings notes what an agent offers in a new session.
func (w *Worker) learnSettings(name subjects.Raider, s subjects.Settings) {
	if len(s.Modes)+len(s.Options) > maxAgent {
		w.log.Warn("the agent's modes and options are too large to be told", "raider", string(name))
		return
	}
	if w.agents.setSettings(name, s) {
		signal(w.learnt)
	}
}

func (a *agents) setSettings(name subjects.Raider, s subjects.Settings) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	x, ok := a.known[name]
	if !ok || string(x.Settings.Modes) == string(s.Modes) && string(x.Settings.Options) == string(s.Options) {
		return false // one of which nothing else is known is not told of
	}
	x.Settings = s
	a.known[name] = x
	return true
}

// set notes what is known of an agent; false when it was known.
func (a *agents) set(name subjects.Raider, x subjects.Agent) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, ok := a.known[name]
	if ok && string(old.Capabilities) == string(x.Capabilities) && string(old.Info) == string(x.Info) && string(old.AuthMethods) == string(x.AuthMethods) {
		return false
	}
	if x.Settings.None() {
		x.Settings = old.Settings // initialize says nothing of them
	}
	if a.known == nil {
		a.known = map[subjects.Raider]subjects.Agent{}
	}
	a.known[name] = x
	return true
}

// probe asks the agents what they can, one after the other, so that clients are told the
// truth before the first run. It returns when all have answered, or ctx ends.
func (w *Worker) probe(ctx context.Context) {
	var left []*Raider
	for i := range w.c.Raiders {
		if w.c.Raiders[i].Probe {
			left = append(left, w.raiders[w.c.Raiders[i].Name])
		}
	}
	for pause := probeAgain; len(left) > 0; pause = min(2*pause, probeSeldom) {
		left = slices.DeleteFunc(left, func(r *Raider) bool {
			if _, ok := w.agents.all()[r.Name]; ok {
				return true // it has run meanwhile
			}
			err := w.probeOne(ctx, r)
			if err != nil && ctx.Err() == nil {
				w.log.Warn("raider's agent does not tell what it can; it is asked again", "raider", string(r.Name), "in", pause, "error", r.redact(err.Error()))
			}
			return err == nil
		})
		if len(left) == 0 {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// probeOne starts a raider, asks it, and returns when nothing of it runs any more.
func (w *Worker) probeOne(ctx context.Context, r *Raider) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dir := r.Cwd
	if dir == "" {
		dir = w.c.StateDir
	}
	sp, err := shim.Start(ctx, shim.Spec{
		Exe: w.c.Exe, Command: r.Command, Dir: dir, Env: r.environment(), Deadline: shim.After(startTimeout + 3*stopGrace),
		Hold: w.lock.file, Pool: w.shims,
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	conn := rpc.NewConn(sp.Stdout(), sp.Stdin(), nil, rpc.Options{SkipNoise: func([]byte) {}, Logger: w.log})
	var last tail
	var readers sync.WaitGroup
	readers.Go(func() { _ = conn.Run(context.WithoutCancel(ctx)) }) // the call below learns of its end
	readers.Go(func() { last.read(sp.Stderr()) })
	defer func() {
		kill := context.AfterFunc(ctx, sp.Kill)
		sp.Stop(stopGrace)
		kill()
		<-sp.Gone()
		_ = conn.Close()
		readers.Wait()
	}()
	hello := fmt.Sprintf(`{"protocolVersion":1,"clientCapabilities":%s,"clientInfo":{"name":"raiderfleet","version":%s}}`,
		r.clientCapabilities(""), quote(w.c.Version))
	answer, err := conn.Call(ctx, "initialize", json.RawMessage(hello))
	if err != nil {
		if text := last.text(); text != "" && errors.Is(err, rpc.ErrClosed) {
			return fmt.Errorf("initialize: it ended: %s", text)
		}
		return fmt.Errorf("initialize: %w", err)
	}
	w.learn(r.Name, answer)
	return nil
}

// read keeps the last lines until r ends.
func (t *tail) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			t.add(strings.TrimRight(string(line), "\r\n"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
