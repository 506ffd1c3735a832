package frontdoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

const (
	// raiderKey chooses the raider in the _meta of session/new.
	raiderKey = "raiderfleet/raider"
	// slotsOwnKey, true there, makes the session its slot's own.
	slotsOwnKey = "raiderfleet/slots_own"
)

// binding is what a session is opened with: a raider, or a seat of one.
type binding struct {
	raider subjects.Raider
	slot   string
}

// bind finds a raider or slot by name, "" for the default. A raider that is configured
// under the name of a slot wins.
func (f *FrontDoor) bind(name string) (binding, error) {
	if name == "" {
		if f.fallback.raider != "" {
			return f.fallback, nil
		}
		return binding{raider: f.c.Raiders[0].Name}, nil
	}
	if _, ok := f.raiders[subjects.Raider(name)]; ok {
		return binding{raider: subjects.Raider(name)}, nil
	}
	if base, ok := subjects.IsSlot(name); ok {
		if _, known := f.raiders[subjects.Raider(base)]; known {
			slot := seat(name, base)
			if _, err := subjects.SlotLane(slot); err == nil {
				return binding{raider: subjects.Raider(base), slot: slot}, nil
			}
		}
	}
	names := make([]string, len(f.c.Raiders))
	for i, r := range f.c.Raiders {
		names[i] = string(r.Name)
	}
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	return binding{}, invalidParams("unknown raider %q; there are %s", name, strings.Join(names, ", "))
}

// seat is a slot's name with its number as it is counted: 01bjorn is seat 1 of bjorn.
func seat(name, base string) string {
	n := strings.TrimLeft(strings.TrimSuffix(name, base), "0")
	if n == "" {
		n = "0"
	}
	return n + base
}

type sessionParams struct {
	Session               string          `json:"sessionId"`
	Cwd                   string          `json:"cwd"`
	AdditionalDirectories []string        `json:"additionalDirectories"`
	MCPServers            json.RawMessage `json:"mcpServers"`
	Raider                string          `json:"raiderName"`
	Meta                  json.RawMessage `json:"_meta"`
	slotsOwn              bool
}

// parseSessionParams checks what session/new and session/load have in common.
func parseSessionParams(raw json.RawMessage) (sessionParams, error) {
	var p sessionParams
	obj, err := asObject(raw)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(obj, &p); err != nil {
		return p, invalidParams("%s", mismatch(err))
	}
	if !path.IsAbs(p.Cwd) {
		return p, invalidParams("cwd must be an absolute path")
	}
	for i, d := range p.AdditionalDirectories {
		if !path.IsAbs(d) {
			return p, invalidParams("additionalDirectories[%d] must be an absolute path", i)
		}
	}
	if p.MCPServers, err = mcpServers(p.MCPServers); err != nil {
		return p, err
	}
	if len(p.Meta) > 0 && p.Raider == "" {
		if raw, ok := rawjson.Get(p.Meta, raiderKey); ok && json.Unmarshal(raw, &p.Raider) != nil {
			return p, invalidParams("_meta[%q] must be a string", raiderKey)
		}
	}
	if raw, ok := rawjson.Get(p.Meta, slotsOwnKey); ok && json.Unmarshal(raw, &p.slotsOwn) != nil {
		return p, invalidParams("_meta[%q] must be true or false", slotsOwnKey)
	}
	return p, nil
}

// asObject refuses params that are no object; missing ones are an empty object.
func asObject(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage(`{}`), nil
	}
	if raw[0] != '{' {
		return nil, invalidParams("params must be an object")
	}
	return raw, nil
}

// mismatch names the member that has the wrong type, without what was sent.
func mismatch(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Sprintf("%s must not be a %s", wrong.Field, wrong.Value)
	}
	return "params can't be read"
}

// mcpServers checks each entry and returns the array as the client sent it.
func mcpServers(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(`[]`), nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, invalidParams("mcpServers must be an array")
	}
	for i, entry := range list {
		if why := mcpServer(entry); why != "" {
			return nil, invalidParams("mcpServers[%d]: %s", i, why)
		}
	}
	return raw, nil
}

// mcpServer says what is wrong with an entry, "" for nothing.
func mcpServer(raw json.RawMessage) string {
	type pair struct {
		Name  *string `json:"name"`
		Value *string `json:"value"`
	}
	var s struct {
		Type    *string   `json:"type"`
		Name    *string   `json:"name"`
		Command *string   `json:"command"`
		Args    *[]string `json:"args"`
		Env     *[]pair   `json:"env"`
		URL     *string   `json:"url"`
		Headers *[]pair   `json:"headers"`
	}
	if len(raw) == 0 || raw[0] != '{' {
		return "must be an object"
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return mismatch(err)
	}
	kind := "stdio"
	if s.Type != nil {
		kind = *s.Type
	}
	var missing string
	pairs := s.Env
	switch {
	case s.Name == nil:
		missing = "name"
	case kind == "stdio" && s.Command == nil:
		missing = "command"
	case kind == "stdio" && s.Args == nil:
		missing = "args"
	case kind == "stdio" && s.Env == nil:
		missing = "env"
	case kind == "stdio":
	case kind != "http" && kind != "sse":
		return "type must be stdio, http or sse"
	case s.URL == nil:
		missing = "url"
	case s.Headers == nil:
		missing = "headers"
	default:
		pairs = s.Headers
	}
	if missing != "" {
		return missing + " is missing"
	}
	for _, p := range *pairs {
		if p.Name == nil || p.Value == nil {
			return "env and headers need name and value"
		}
	}
	return ""
}

// newSession answers session/new. The session's record is stored before the answer, so
// that any front door can serve it from then on.
func (c *conn) newSession(ctx context.Context, r *rpc.Request) error {
	p, err := parseSessionParams(r.Params)
	if err != nil {
		return err
	}
	bound, err := c.f.bind(p.Raider)
	if err != nil {
		return err
	}
	now := time.Now()
	meta := subjects.SessionMeta{
		Session: subjects.NewSession(), Principal: c.principal, Raider: bound.raider, Slot: bound.slot,
		SlotsOwn: p.slotsOwn && bound.slot != "", Class: subjects.AnyClass, State: subjects.SessionOpen, Cwd: p.Cwd,
		AdditionalDirectories: p.AdditionalDirectories, MCPServers: p.MCPServers, Created: now, Updated: now,
	}
	meta.Lane = subjects.SessionLane(meta.Session)
	if bound.slot != "" {
		if meta.Lane, err = subjects.SlotLane(bound.slot); err != nil {
			return err
		}
	}
	err = c.f.retry(ctx, func(ctx context.Context) error {
		_, err := c.f.b.PutJSON(ctx, c.f.fleet.SessionsBucket(), subjects.MetaKey(c.principal, meta.Session), meta, 0, 0)
		if errors.Is(err, bus.ErrConflict) {
			return nil // an earlier try of this one is stored: the id is new
		}
		return err
	})
	if errors.Is(err, nats.ErrMaxPayload) {
		return invalidParams("params are too large: a session's directories and MCP servers must fit into a message (%d bytes)", c.f.b.MaxInline())
	}
	if err != nil {
		return err
	}
	a, err := c.attach(meta.Session)
	if err != nil {
		return err
	}
	// The client gets nothing of a session that it does not know yet.
	a.known = make(chan struct{})
	defer close(a.known)
	a.open(&meta, true, nil)
	chosen, err := a.first(ctx, meta)
	if err != nil {
		a.forget()
		a.end()
		return err
	}
	result := map[string]any{"sessionId": meta.Session}
	a.show(result, chosen)
	answer(c.log, r, result)
	return nil
}

// first are the settings that session/new answers with.
func (a *attachment) first(ctx context.Context, meta subjects.SessionMeta) (subjects.Settings, error) {
	var agent subjects.SessionAgent
	if a.f.raiders[meta.Raider].Eager && meta.Slot == "" {
		err := a.wait(ctx)
		if err == nil {
			a.openAhead(ctx, meta)
			agent, err = a.f.agentOf(ctx, meta.Principal, meta.Session)
		}
		if err != nil {
			return subjects.Settings{}, err
		}
	}
	if agent.InnerID == "" {
		a.f.refresh(ctx) // nothing but the raider's is known
	}
	return a.f.settingsOf(meta, agent), nil
}

// meta reads a session of the client's principal.
func (c *conn) meta(ctx context.Context, id string) (subjects.SessionMeta, uint64, error) {
	var m subjects.SessionMeta
	session, err := subjects.ParseSession(id)
	if err != nil {
		return m, 0, sessionNotFound(id)
	}
	var rev uint64
	err = c.f.retry(ctx, func(ctx context.Context) error {
		m = subjects.SessionMeta{}
		var err error
		rev, err = c.f.b.GetJSON(ctx, c.f.fleet.SessionsBucket(), subjects.MetaKey(c.principal, session), &m)
		return err
	})
	if errors.Is(err, bus.ErrNotFound) {
		return m, 0, sessionNotFound(id)
	}
	return m, rev, err
}

// setState changes a session's record by compare-and-set, whatever else is changed in it
// meanwhile. change returns false when nothing is to be written.
func (c *conn) setState(ctx context.Context, id string, change func(*subjects.SessionMeta) bool) (subjects.SessionMeta, error) {
	for {
		m, rev, err := c.meta(ctx, id)
		if err != nil || !change(&m) {
			return m, err
		}
		m.Updated = time.Now()
		err = c.f.retry(ctx, func(ctx context.Context) error {
			_, err := c.f.b.PutJSON(ctx, c.f.fleet.SessionsBucket(), subjects.MetaKey(c.principal, m.Session), m, rev, 0)
			return err
		})
		if !errors.Is(err, bus.ErrConflict) {
			return m, err
		}
	}
}

// sessionOf reads the session id out of params.
func sessionOf(raw json.RawMessage) (string, error) {
	obj, err := asObject(raw)
	if err != nil {
		return "", err
	}
	var id string
	value, ok := rawjson.Get(obj, "sessionId")
	if !ok || bytes.Equal(value, []byte("null")) || json.Unmarshal(value, &id) != nil {
		return "", invalidParams("sessionId must be a string")
	}
	return id, nil
}

// retry repeats do while its effect is unclear, until ctx ends, and gives up after
// ack_wait. Each try is bounded and begins with a link. That NATS has no space left is an
// answer: a person has to make room.
func (f *FrontDoor) retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.b.AckWait())
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := f.b.WaitUp(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoLink, err)
		}
		bound, done := f.b.Bound(ctx, f.b.AckWait()/3)
		err = do(bound)
		done()
		f.miss(err)
		if err == nil || !bus.Unclear(err) || errors.Is(err, bus.ErrNoSpace) || ctx.Err() != nil {
			return err
		}
		if !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
