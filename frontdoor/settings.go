package frontdoor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/internal/settings"
	"raiderfleet/subjects"
)

// setFor bounds how long a raider may take to answer that it has set a mode or an option:
// one that is being started may be fetched first.
const setFor = 2 * time.Minute

// setAgain is the pause before an owner that did not answer is asked again.
const setAgain = 50 * time.Millisecond

// settingsOf are a session's settings, as far as anybody knows: what its agent has told, or
// what the raider's agents offered in earlier sessions, with what was wished since.
func (f *FrontDoor) settingsOf(meta subjects.SessionMeta, agent subjects.SessionAgent) subjects.Settings {
	known := agent.Settings
	if known.None() && agent.InnerID == "" {
		known = f.offered(meta.Raider)
	}
	return settings.With(known, meta.Wishes, agent.Settled)
}

// offered are the settings that a raider's agent had in its last new session, anywhere.
func (f *FrontDoor) offered(name subjects.Raider) subjects.Settings {
	f.agents.mu.Lock()
	defer f.agents.mu.Unlock()
	for _, a := range f.agents.known[name] {
		if !a.Settings.None() {
			return a.Settings
		}
	}
	return subjects.Settings{}
}

// agentOf reads what workers have noted of a session's agent; the zero value is nothing.
func (f *FrontDoor) agentOf(ctx context.Context, p subjects.Principal, s subjects.SessionID) (subjects.SessionAgent, error) {
	var agent subjects.SessionAgent
	err := f.retry(ctx, func(ctx context.Context) error {
		agent = subjects.SessionAgent{}
		_, err := f.b.GetJSON(ctx, f.fleet.SessionsBucket(), subjects.AgentKey(p, s), &agent)
		return err
	})
	if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrCorrupt) {
		return subjects.SessionAgent{}, nil
	}
	return agent, err
}

// show adds settings to the answer to session/new, load or resume, and notes what the client
// was told.
func (a *attachment) show(result map[string]any, s subjects.Settings) {
	if len(s.Modes) > 0 {
		result["modes"] = s.Modes
	}
	if len(s.Options) > 0 {
		result["configOptions"] = s.Options
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = s
}

// settings tells the client that other modes or options are chosen, unless it knows.
func (w *follower) settings(body []byte) {
	var b subjects.SettingsBody
	if json.Unmarshal(body, &b) != nil || w.load != nil || b.Origin == string(w.f.instance)+" "+string(w.a.id) {
		return // a load's answer has what is chosen in the end
	}
	now := subjects.Settings{Modes: b.Modes, Options: b.Options}
	w.a.mu.Lock()
	told := w.a.told
	if len(now.Modes) > 0 {
		w.a.told.Modes = now.Modes
	}
	if len(now.Options) > 0 {
		w.a.told.Options = now.Options
	}
	w.a.mu.Unlock()
	// No update can tell which modes there are: a client that knows none hears of none.
	if mode := settings.Mode(now); mode != "" && settings.Mode(told) != "" && (!b.First || mode != settings.Mode(told)) {
		w.a.update(json.RawMessage(`{"sessionUpdate":"current_mode_update","currentModeId":` + string(object(mode)) + `}`))
	}
	if len(now.Options) > 0 && (!b.First || !settings.Same(now.Options, told.Options)) {
		w.a.update(json.RawMessage(`{"sessionUpdate":"config_option_update","configOptions":` + string(now.Options) + `}`))
	}
}

// update writes an update.
func (a *attachment) update(update json.RawMessage) {
	a.notify(json.RawMessage(`{"sessionId":` + string(object(a.session)) + `,"update":` + string(update) + `}`))
}

// setChoice answers session/set_mode and session/set_config_option: the session's process
// sets it, or it is wished for the next one.
func (c *conn) setChoice(ctx context.Context, r *rpc.Request) error {
	id, err := sessionOf(r.Params)
	if err != nil {
		return err
	}
	w := subjects.Wish{Method: r.Method, Params: r.Params}
	if err := checkChoice(w); err != nil {
		return err
	}
	meta, _, err := c.meta(ctx, id)
	if err != nil {
		return err
	}
	if meta.State != subjects.SessionOpen {
		return sessionClosed(meta.Session)
	}
	origin := string(c.f.instance)
	if a := c.find(meta.Session); a != nil {
		origin += " " + string(a.id)
	}
	result, live, err := c.f.setLive(ctx, meta, w, origin)
	if err != nil {
		return err
	}
	if live {
		answer(c.log, r, result)
		return nil
	}
	// There is no process: it is chosen when one starts.
	wished, now, err := c.wish(ctx, id, w)
	if err != nil {
		return err
	}
	// One that was just starting may have read the session's record before.
	result, live, err = c.f.setLive(ctx, meta, wished, origin)
	if err != nil {
		c.unwish(ctx, id, wished)
		return err
	}
	if !live {
		c.f.tellSettings(ctx, meta, settings.About(now, r.Method), origin)
		result = json.RawMessage(`{}`)
		if r.Method == subjects.MethodSetOption {
			result = json.RawMessage(`{"configOptions":` + string(now.Options) + `}`)
		}
	}
	answer(c.log, r, result)
	return nil
}

// checkChoice refuses params that choose nothing.
func checkChoice(w subjects.Wish) error {
	need := func(key string) error {
		if raw, ok := rawjson.Get(w.Params, key); !ok || raw[0] != '"' {
			return invalidParams("%s must be a string", key)
		}
		return nil
	}
	if w.Method == subjects.MethodSetMode {
		return need("modeId")
	}
	if err := need("configId"); err != nil {
		return err
	}
	kind, _ := rawjson.Get(w.Params, "type")
	if rawjson.Unquote(kind) != "boolean" {
		return need("value")
	}
	if value, _ := rawjson.Get(w.Params, "value"); string(value) != "true" && string(value) != "false" {
		return invalidParams("value must be true or false")
	}
	return nil
}

// setLive has the session's process set a choice, once, however often its owner is asked.
// live is false when there is no process.
func (f *FrontDoor) setLive(ctx context.Context, meta subjects.SessionMeta, w subjects.Wish, origin string) (result json.RawMessage, live bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, setFor)
	defer cancel()
	req := subjects.ControlRequest{
		Op: subjects.ControlSet, Principal: meta.Principal, Session: meta.Session, By: origin,
		Call: rand.Text(), Method: w.Method, Params: w.Params, Wish: w.N,
	}
	for {
		reply, err := f.control(ctx, meta.Lane, req)
		switch {
		case errors.Is(err, nats.ErrNoResponders), err == nil && reply.Decided:
			return nil, false, nil
		case err == nil && reply.Fault != nil:
			return nil, true, choiceRefused(meta.Session, *reply.Fault)
		case err == nil && reply.Error == "":
			return reply.Result, true, nil
		case errors.Is(err, nats.ErrMaxPayload):
			return nil, false, invalidParams("params are too large (%d bytes)", f.b.MaxInline())
		}
		if ctx.Err() != nil || !sleep(ctx, setAgain) {
			return nil, true, context.Cause(ctx)
		}
	}
}

// wish notes a choice in the session's record. It refuses what the raider does not offer,
// as far as that is known.
func (c *conn) wish(ctx context.Context, id string, w subjects.Wish) (subjects.Wish, subjects.Settings, error) {
	var now subjects.Settings
	c.f.refresh(ctx)
	session, err := subjects.ParseSession(id)
	if err != nil {
		return w, now, sessionNotFound(id)
	}
	agent, err := c.f.agentOf(ctx, c.principal, session)
	if err != nil {
		return w, now, err
	}
	var refused error
	_, err = c.setState(ctx, id, func(m *subjects.SessionMeta) bool {
		now = c.f.settingsOf(*m, agent)
		if m.State != subjects.SessionOpen {
			refused = sessionClosed(m.Session)
			return false
		}
		if refused = offers(now, w, m.Raider); refused != nil {
			return false
		}
		w.N = max(m.Wished, agent.Settled) + 1
		// Those that have been applied are in what the agent told.
		m.Wishes = append(slices.DeleteFunc(slices.Clone(m.Wishes), func(old subjects.Wish) bool {
			return old.N <= agent.Settled || settings.SameWish(old, w)
		}), w)
		m.Wished = w.N
		now = settings.With(now, m.Wishes, w.N-1)
		return true
	})
	if errors.Is(err, nats.ErrMaxPayload) {
		return w, now, invalidParams("params are too large (%d bytes)", c.f.b.MaxInline())
	}
	if err == nil {
		err = refused
	}
	return w, now, err
}

// offers refuses a choice that the raider does not offer.
func offers(s subjects.Settings, w subjects.Wish, raider subjects.Raider) error {
	mode, id, value := settings.Wish(w)
	if w.Method == subjects.MethodSetMode {
		switch {
		case len(s.Modes) == 0:
			return invalidParams("raider %s has no modes that are known yet", raider)
		case !settings.HasMode(s, mode):
			return invalidParams("raider %s has no mode %q", raider, cut(mode))
		}
		return nil
	}
	option, ok := settings.Find(s, id)
	switch {
	case len(s.Options) == 0:
		return invalidParams("raider %s has no options that are known yet", raider)
	case !ok:
		return invalidParams("raider %s has no option %q", raider, cut(id))
	case !option.Offers(value):
		return invalidParams("option %q of raider %s has no such value", cut(id), raider)
	}
	return nil
}

// cut shortens what a client sent, for an error's text.
func cut(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}

// unwish takes back a wish that the raider has refused after all.
func (c *conn) unwish(ctx context.Context, id string, w subjects.Wish) {
	_, err := c.setState(ctx, id, func(m *subjects.SessionMeta) bool {
		before := len(m.Wishes)
		m.Wishes = slices.DeleteFunc(slices.Clone(m.Wishes), func(old subjects.Wish) bool { return old.N == w.N })
		return len(m.Wishes) < before
	})
	if err != nil && ctx.Err() == nil {
		c.log.Warn("a choice that was refused stays in the session's record", "session", id, "error", err)
	}
}

// tellSettings tells the session's other clients what is chosen. No owner writes it: there
// is none, or it has no process of the session.
func (f *FrontDoor) tellSettings(ctx context.Context, meta subjects.SessionMeta, now subjects.Settings, origin string) {
	h := subjects.EventHeader{Kind: subjects.EventSettings}
	body := object(subjects.SettingsBody{Modes: now.Modes, Options: now.Options, Origin: origin})
	err := f.retry(ctx, func(ctx context.Context) error {
		_, err := f.b.Publish(ctx, &nats.Msg{Subject: f.fleet.Event(meta.Session), Header: h.Header(), Data: body})
		return err
	})
	if err != nil && ctx.Err() == nil {
		f.log.Warn("what was chosen is not told to the session's other clients", "session", string(meta.Session), "error", err)
	}
}
