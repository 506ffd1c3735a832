package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/internal/settings"
	"raiderfleet/subjects"
)

const (
	// maxSettings bounds what is kept of an agent's modes and options, and of its commands,
	// in bytes each: they stand in the session's record, which is one message.
	maxSettings = 128 << 10
	// maxSets is how many answers to sets are remembered, for those that come again.
	maxSets = 64
)

// choices are what a process knows of its session's settings beside the record.
type choices struct {
	choosing sync.Mutex // held while something is chosen: one after the other

	mu     sync.Mutex // guards the rest
	told   bool       // the agent has answered with its settings
	known  bool       // and they are in the process's record: from now on updates change it
	early  []json.RawMessage
	modes  int // updates of each that have changed the record
	option int
	sets   map[string]*set
	order  []string // of sets
}

// set is a request to choose something, which may come again.
type set struct {
	done  chan struct{}
	reply subjects.ControlReply
}

// answered notes, on the reading goroutine, that the agent has answered: updates that come
// from now on are newer than the answer.
func (p *process) answered() {
	p.choices.mu.Lock()
	defer p.choices.mu.Unlock()
	p.choices.told, p.choices.early = true, nil
}

// learnt makes the settings in an agent's answer the process's, with what came behind it.
func (p *process) learnt(answer json.RawMessage) {
	now := settings.Of(answer)
	if len(now.Modes)+len(now.Options) > maxSettings {
		p.l.w.log.Warn("the agent's modes and options are too large to be kept", "raider", string(p.l.raider.Name), "bytes", len(now.Modes)+len(now.Options))
		now = subjects.Settings{}
	}
	p.mu.Lock()
	p.agent.Settings = now
	p.mu.Unlock()
	p.choices.mu.Lock()
	defer p.choices.mu.Unlock()
	for _, update := range p.choices.early {
		p.changeLocked(update)
	}
	p.choices.known, p.choices.early = true, nil
}

// overhear notes what an update changes of the settings and the commands. It is the reading
// goroutine's.
func (p *process) overhear(update json.RawMessage) {
	if !bytes.Contains(update, []byte(`_update"`)) {
		return // every update of every raider passes here
	}
	kind, _ := rawjson.Get(update, "sessionUpdate")
	c := &p.choices
	changed := false
	switch rawjson.Unquote(kind) {
	case "available_commands_update":
		if len(update) > maxSettings {
			p.l.w.log.Warn("the agent's commands are too large to be kept", "raider", string(p.l.raider.Name), "bytes", len(update))
			return
		}
		p.mu.Lock()
		changed = !bytes.Equal(p.agent.Commands, update)
		p.agent.Commands = bytes.Clone(update)
		p.mu.Unlock()
		c.mu.Lock()
		changed = changed && c.known // else it is stored with the rest
		c.mu.Unlock()
	case "current_mode_update", "config_option_update":
		c.mu.Lock()
		switch {
		case c.known:
			changed = p.changeLocked(update)
		case c.told:
			c.early = append(c.early, bytes.Clone(update))
		}
		c.mu.Unlock()
	}
	if !changed {
		return
	}
	if err := p.store(); err != nil && p.l.ctx.Err() == nil {
		p.l.w.log.Error("what a session's agent offers can't be noted", "session", string(p.session), "error", err)
	}
}

// changeLocked makes an update's mode or options the process's; false where nothing changes.
func (p *process) changeLocked(update json.RawMessage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.agent.Settings
	if options := settings.Options(update); options != nil && len(options) <= maxSettings {
		p.choices.option++
		p.agent.Settings.Options = bytes.Clone(options)
	}
	if mode, ok := rawjson.Get(update, "currentModeId"); ok {
		p.choices.modes++
		p.agent.Settings = settings.WithMode(p.agent.Settings, rawjson.Unquote(mode))
	}
	return !bytes.Equal(before.Modes, p.agent.Settings.Modes) || !bytes.Equal(before.Options, p.agent.Settings.Options)
}

// choose has the agent set a mode or an option. The error is an *rpc.Error when the agent
// refuses it.
func (p *process) choose(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	params, err := rawjson.Set(params, "sessionId", quote(p.inner))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	c := &p.choices
	var modes, option int
	result, err := p.conn.CallMarked(ctx, method, params, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		modes, option = c.modes, c.option
	})
	if err != nil {
		return nil, err
	}
	mode, id, value := settings.Wish(subjects.Wish{Method: method, Params: params})
	c.mu.Lock()
	defer c.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	// What the agent has said since is newer than its answer.
	switch options := settings.Options(result); {
	case method == subjects.MethodSetMode && c.modes == modes:
		p.agent.Settings = settings.WithMode(p.agent.Settings, mode)
	case method == subjects.MethodSetMode || c.option != option:
	case options != nil && len(options) <= maxSettings:
		p.agent.Settings.Options = options
	default:
		p.agent.Settings = settings.WithOption(p.agent.Settings, id, value)
	}
	return result, nil
}

// restore makes the agent's session what was chosen in it: what its record says, then the
// wishes that came while it had no process. had is what the record said. A choice that the
// agent does not take any more is told, and the session goes on without.
func (p *process) restore(ctx context.Context, r *run, had subjects.Settings, wishes []subjects.Wish) error {
	p.choices.choosing.Lock()
	defer p.choices.choosing.Unlock()
	wishes = p.unsettled(wishes)
	if err := p.again(ctx, had, wishes); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if err := p.fulfil(ctx, r, wishes); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	now, want := p.known().Settings, settings.With(had, wishes, 0)
	switch {
	case had.None() && now.None():
	case had.None():
		p.tellSettings(now, true, "")
	case !settings.Same(now.Options, want.Options):
		if settings.Mode(now) == settings.Mode(want) {
			now.Modes = nil
		}
		p.tellSettings(now, false, "")
	case settings.Mode(now) != settings.Mode(want):
		p.tellSettings(settings.About(now, subjects.MethodSetMode), false, "")
	}
	return nil
}

// unsettled are the wishes that have not been applied.
func (p *process) unsettled(wishes []subjects.Wish) []subjects.Wish {
	settled := p.known().Settled
	return slices.DeleteFunc(slices.Clone(wishes), func(w subjects.Wish) bool { return w.N <= settled })
}

// again sets what was chosen before, where the agent has forgotten it and still offers it.
func (p *process) again(ctx context.Context, had subjects.Settings, wishes []subjects.Wish) error {
	wished := func(w subjects.Wish) bool {
		return slices.ContainsFunc(wishes, func(other subjects.Wish) bool { return settings.SameWish(w, other) })
	}
	set := func(w subjects.Wish) error {
		_, err := p.choose(ctx, w.Method, w.Params)
		if _, refused := errors.AsType[*rpc.Error](err); refused {
			p.l.w.log.Debug("agent does not take an earlier choice", "raider", string(p.l.raider.Name), "session", string(p.session))
			return nil
		}
		return err
	}
	// One option may bring another with it, before it in the list or behind.
	for range 2 {
		for _, o := range settings.Each(had) {
			now, ok := settings.Find(p.known().Settings, o.ID)
			if !ok || len(o.Value) == 0 || settings.Same(now.Value, o.Value) || !now.Offers(o.Value) {
				continue
			}
			params := `{"configId":` + string(quote(o.ID)) + `,"value":` + string(o.Value)
			if now.Boolean() {
				params += `,"type":"boolean"`
			}
			w := subjects.Wish{Method: subjects.MethodSetOption, Params: json.RawMessage(params + "}")}
			if wished(w) {
				continue
			}
			if err := set(w); err != nil {
				return err
			}
		}
	}
	now, mode := p.known().Settings, settings.Mode(had)
	if mode == "" || mode == settings.Mode(now) || !settings.HasMode(now, mode) {
		return nil
	}
	w := subjects.Wish{Method: subjects.MethodSetMode, Params: json.RawMessage(`{"modeId":` + string(quote(mode)) + `}`)}
	if wished(w) {
		return nil
	}
	return set(w)
}

// fulfil applies wishes.
func (p *process) fulfil(ctx context.Context, r *run, wishes []subjects.Wish) error {
	for _, w := range wishes {
		_, err := p.choose(ctx, w.Method, w.Params)
		if fault, refused := errors.AsType[*rpc.Error](err); refused {
			p.tellRefused(r, w, fault)
			err = nil
		}
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.agent.Settled = max(p.agent.Settled, w.N)
		p.mu.Unlock()
	}
	return nil
}

// tellRefused tells a session's clients that the agent does not take what was chosen.
func (p *process) tellRefused(r *run, w subjects.Wish, fault *rpc.Error) {
	what := "mode"
	if w.Method == subjects.MethodSetOption {
		what = "option"
	}
	body, err := json.Marshal(subjects.Note{
		Type: subjects.SessionError, Binding: r.meta.Binding(), Error: p.l.redact(fault.Message), Run: r.prompt(),
		Text: "The agent does not take the " + what + " that was chosen; it goes on without.",
	})
	if err == nil {
		_ = p.l.out.append(p.session, subjects.EventNote, r.prompt(), body, nil) // fails only with the lane
	}
}

// tellSettings tells a session's clients what is chosen.
func (p *process) tellSettings(s subjects.Settings, first bool, origin string) {
	body, err := json.Marshal(subjects.SettingsBody{Modes: s.Modes, Options: s.Options, First: first, Origin: origin})
	if err == nil {
		_ = p.l.out.append(p.session, subjects.EventSettings, "", body, nil) // fails only with the lane
	}
}

// set answers a request to choose something in the session's process.
func (l *lane) set(req subjects.ControlRequest) subjects.ControlReply {
	l.mu.Lock()
	p := l.proc
	l.mu.Unlock()
	if p == nil || p.session != req.Session || p.meta.Principal != req.Principal || p.stale.Load() {
		return subjects.ControlReply{Decided: true}
	}
	c := &p.choices
	c.mu.Lock()
	s, again := c.sets[req.Call]
	if !again {
		s = &set{done: make(chan struct{})}
		if c.sets == nil {
			c.sets = map[string]*set{}
		}
		c.sets[req.Call] = s
		if c.order = append(c.order, req.Call); len(c.order) > maxSets {
			delete(c.sets, c.order[0])
			c.order = c.order[1:]
		}
	}
	c.mu.Unlock()
	if again {
		<-s.done // ends with the process
		return s.reply
	}
	defer close(s.done)
	s.reply = p.set(req)
	return s.reply
}

func (p *process) set(req subjects.ControlRequest) subjects.ControlReply {
	select {
	case <-p.opened:
	case <-p.sp.Exited():
	}
	gone := subjects.ControlReply{Decided: true}
	if !p.isOpen.Load() || !p.alive() {
		return gone
	}
	ctx, cancel := context.WithTimeout(p.l.ctx, startTimeout)
	defer cancel()
	p.choices.choosing.Lock()
	defer p.choices.choosing.Unlock()
	if now := p.known(); req.Wish > 0 && req.Wish <= now.Settled {
		return chosen(json.RawMessage(`{}`), req.Method, now.Settings) // with the others, at the start
	}
	result, err := p.choose(ctx, req.Method, req.Params)
	var fault *rpc.Error
	switch {
	case errors.As(err, &fault):
		return subjects.ControlReply{Fault: &subjects.RunError{
			Message: p.l.redact(fault.Message), Code: fault.Code, Data: p.l.redactJSON(fault.Data),
		}}
	case err != nil && (!p.alive() || p.l.ctx.Err() != nil):
		return gone
	case err != nil:
		return subjects.ControlReply{Error: "the agent does not answer " + req.Method}
	}
	p.mu.Lock()
	p.agent.Settled = max(p.agent.Settled, req.Wish)
	p.mu.Unlock()
	if err := p.store(); err != nil {
		return subjects.ControlReply{Error: "what was chosen is not noted yet"}
	}
	now := p.known().Settings
	p.tellSettings(settings.About(now, req.Method), false, req.By)
	if p.l.out.flush() != nil {
		return gone
	}
	return chosen(result, req.Method, now)
}

// chosen is the reply to a set: the agent's answer, with the options where it has left them
// out.
func chosen(result json.RawMessage, method string, now subjects.Settings) subjects.ControlReply {
	if method == subjects.MethodSetOption && settings.Options(result) == nil {
		options := now.Options
		if len(options) == 0 {
			options = json.RawMessage(`[]`)
		}
		result = json.RawMessage(`{"configOptions":` + string(options) + `}`)
	}
	return subjects.ControlReply{Result: result}
}
