package worker

import (
	"encoding/json"
	"slices"

	"raiderfleet/internal/policy"
	"raiderfleet/internal/rawjson"
)

// The kinds of options of a permission request, in ACP's words.
const (
	allowOnce    = "allow_once"
	allowAlways  = "allow_always"
	rejectOnce   = "reject_once"
	rejectAlways = "reject_always"
)

// metaReason is where an answer that no person gave says why, for the model.
const metaReason = "raiderfleet/reason"

// parseToolCall reads the call that a permission request is about.
func parseToolCall(params json.RawMessage) (policy.Call, error) {
	raw, _ := rawjson.Get(params, "toolCall")
	return policy.ParseCall(raw)
}

// scope is what the session adds to the raider's policy.
func (p *process) scope() policy.Scope {
	s := policy.Scope{Cwd: p.dir, AllowBypass: p.l.w.c.AllowBypass}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.agent.Rules {
		if r, err := policy.ParseRule(text); err == nil { // one of a newer version allows nothing here
			s.Rules = append(s.Rules, r)
		}
	}
	return s
}

// byPolicy is the answer that the raider's policy and the session's rules give; nil: people
// are asked.
func (r *run) byPolicy(a *ask) json.RawMessage {
	rules := r.l.raider.Policy
	p := r.process()
	if p == nil || a.callErr != nil {
		return nil
	}
	if rules == nil {
		rules = &policy.Policy{}
	}
	d := rules.Decide(a.call, p.scope())
	if d.BypassRefused {
		r.l.w.log.Warn("mode bypass is not permitted at this worker: it asks instead", "raider", string(r.l.raider.Name))
	}
	switch d.Verdict {
	case policy.Allow:
		return a.choose(d.Reason, allowOnce, allowAlways) // nil: no option allows, so people are asked
	case policy.Deny:
		if result := a.choose(d.Reason, rejectOnce, rejectAlways); result != nil {
			return result
		}
		return reasoned(json.RawMessage(outcomeCancelled), d.Reason)
	case policy.Ask:
	}
	return nil
}

// choose is the answer with the first option of one of the kinds; nil when none was offered.
func (a *ask) choose(reason string, kinds ...string) json.RawMessage {
	for _, kind := range kinds {
		for _, o := range a.options {
			if o.Kind == kind {
				return reasoned(json.RawMessage(`{"outcome":{"outcome":"selected","optionId":`+string(quote(o.ID))+`}}`), reason)
			}
		}
	}
	return nil
}

// reasoned adds to an answer why it was given.
func reasoned(result json.RawMessage, reason string) json.RawMessage {
	if reason == "" {
		return result
	}
	meta, err := json.Marshal(map[string]string{metaReason: reason})
	if err != nil {
		return result
	}
	if with, err := rawjson.Set(result, "_meta", meta); err == nil {
		return with
	}
	return result
}

// learn makes a session rule of an 'allow always' that somebody chose: it holds on any
// worker and ends with the session. No rule, where none names the call. The rule is there
// before the raider has its answer, and stored a moment later.
func (a *ask) learn(option string) {
	i := slices.IndexFunc(a.options, func(o permissionOption) bool { return o.ID == option })
	p := a.r.process()
	if i < 0 || a.options[i].Kind != allowAlways || p == nil || a.callErr != nil {
		return
	}
	rule, ok := policy.RuleFor(a.call, p.dir)
	if !ok {
		return
	}
	p.mu.Lock()
	if !slices.Contains(p.agent.Rules, rule) {
		p.agent.Rules = append(slices.Clone(p.agent.Rules), rule)
	}
	p.mu.Unlock()
	a.r.spawn(func() {
		if err := p.store(); err != nil && a.r.l.ctx.Err() == nil {
			a.r.l.w.log.Error("a session rule can't be noted", "session", string(p.session), "error", err)
		}
	})
}
