package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// recall reads what is known of the agent's session, and what was wished for it: whoever
// finds no process, and wishes then, must find that this one has read it.
func (p *process) recall() error {
	return p.l.do(func(ctx context.Context) error {
		var agent subjects.SessionAgent
		var meta subjects.SessionMeta
		var agentErr, metaErr error
		var reading sync.WaitGroup
		get := func(key string, to any) error {
			_, err := p.l.w.b.GetJSON(ctx, p.l.w.fleet.SessionsBucket(), key, to)
			if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrCorrupt) {
				return nil
			}
			return err
		}
		reading.Go(func() { metaErr = get(subjects.MetaKey(p.meta.Principal, p.meta.Session), &meta) })
		agentErr = get(subjects.AgentKey(p.meta.Principal, p.meta.Session), &agent)
		reading.Wait()
		if agentErr != nil || metaErr != nil {
			return cmp.Or(agentErr, metaErr)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.agent, p.wishes = agent, meta.Wishes
		return nil
	})
}

func (p *process) wished() []subjects.Wish {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wishes
}

// news says whether there is more to note of the agent's session than was read of it.
func (p *process) news(read subjects.SessionAgent) bool {
	now := p.known()
	return now.Settled != read.Settled || !bytes.Equal(now.Commands, read.Commands) ||
		!bytes.Equal(now.Settings.Modes, read.Settings.Modes) || !bytes.Equal(now.Settings.Options, read.Settings.Options)
}

// catchUp applies wishes that a process has missed which was just starting.
func (p *process) catchUp(r *run) error {
	if r.meta.Wished <= p.known().Settled {
		return nil
	}
	wishes := p.unsettled(r.meta.Wishes)
	if len(wishes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, startTimeout)
	defer cancel()
	if err := p.restore(ctx, r, p.known().Settings, wishes); err != nil {
		return err
	}
	agent := p.known()
	p.bind(r, agent.InnerID, agent.CanLoad, false)
	return nil
}

func (p *process) known() subjects.SessionAgent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.agent
}

// bind notes where the agent's session is, and under which id, beside the turn: the run
// ends after it. made says that the agent has just made the session.
func (p *process) bind(r *run, inner string, canLoad, made bool) {
	bound := make(chan struct{})
	r.bound = bound
	go func() { // waited for by execute
		defer close(bound)
		err := p.remember(func(a *subjects.SessionAgent) {
			a.InnerID, a.Home, a.CanLoad = inner, p.l.w.c.Name, canLoad
		})
		switch {
		case err == nil && made:
			p.l.w.tell(subjects.FleetEvent{
				Kind: subjects.SessionBound, Raider: p.l.raider.Name, Lane: p.l.id, Session: p.meta.Session,
				Principal: p.meta.Principal, Binding: p.meta.Binding(),
			})
		case err != nil && p.l.ctx.Err() == nil:
			p.l.w.log.Error("the agent's session can't be noted", "session", string(p.session), "error", err)
		}
	}()
}

// settled notes the agent's new session, once. Where the agent has still to be given the
// conversation this waits for that: else the next process would load a session without it.
func (p *process) settled(r *run) {
	if p.settle != nil {
		p.settle(r)
	}
	p.settle, p.carried = nil, ""
}

// remember changes what is known of the agent's session, here at once and in the session's
// record before it returns. It blocks while NATS is away; the error is the lane's end, or
// that the record can't be stored.
func (p *process) remember(change func(*subjects.SessionAgent)) error {
	p.mu.Lock()
	change(&p.agent)
	p.mu.Unlock()
	return p.store()
}

// store writes what is known of the agent's session.
func (p *process) store() error {
	p.writing.Lock() // the last write has all changes
	defer p.writing.Unlock()
	if p.stale.Load() {
		return nil // it was reset: nothing of it is to come back
	}
	err := p.l.do(func(ctx context.Context) error {
		p.mu.Lock()
		agent := p.agent
		agent.Rules = slices.Clone(agent.Rules)
		p.mu.Unlock()
		_, err := p.l.w.b.SetJSON(ctx, p.l.w.fleet.SessionsBucket(), subjects.AgentKey(p.meta.Principal, p.meta.Session), agent, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("note the agent's session: %w", err)
	}
	if p.stale.Load() {
		return p.forget(p.meta.Principal) // reset in between
	}
	return nil
}

// sessionLost says that the run starts without the agent's earlier session.
func (p *process) sessionLost(r *run, meta subjects.SessionMeta, cause error) {
	if r.lostTold {
		return // by an earlier try to start the raider
	}
	r.lostTold = true
	text := p.l.redact(safeText(cause))
	instead := "it starts without it"
	switch {
	case p.carried == "":
	case p.cut:
		instead = "it is given the newest of the conversation so far"
	default:
		instead = "it is given the conversation so far"
	}
	body, err := json.Marshal(subjects.Note{
		Type: subjects.SessionError, Binding: meta.Binding(), Error: text, Run: r.prompt(),
		Text: "The agent's earlier session could not be loaded; " + instead + ".",
	})
	if err == nil {
		_ = p.l.out.append(meta.Session, subjects.EventNote, r.prompt(), body, nil) // fails only with the lane
	}
	p.l.w.tell(subjects.FleetEvent{
		Kind: subjects.SessionError, Raider: p.l.raider.Name, Lane: p.l.id, Session: meta.Session,
		Principal: meta.Principal, Prompt: r.prompt(), Binding: meta.Binding(), Error: text,
	})
}

// innerNotification is how the adapter of a stream raider tells the id that the command
// gave its session; see internal/stream.
const innerNotification = "_raiderfleet/inner"

// rebind takes the id of the session that the raider's command has made. It is stored
// before the turn is answered: the adapter tells it first, and nothing is read meanwhile.
func (p *process) rebind(params json.RawMessage) {
	var m struct {
		Inner string `json:"inner"`
	}
	if json.Unmarshal(params, &m) != nil || m.Inner == "" {
		p.l.w.log.Warn("raider named a session that is none", "raider", string(p.l.raider.Name))
		return
	}
	err := p.remember(func(a *subjects.SessionAgent) { a.InnerID = m.Inner })
	if err != nil && p.l.ctx.Err() == nil {
		p.l.w.log.Error("the raider's session can't be noted", "session", string(p.session), "error", err)
	}
}
