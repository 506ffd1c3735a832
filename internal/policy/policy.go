package policy

import (
	"errors"
	"fmt"
	"strings"
)

// Config is a policy as it is written.
type Config struct {
	// Mode decides what no rule does. Default ModeDefault.
	Mode Mode
	// Allow and Deny are rules.
	Allow, Deny []string
}

// Policy is a Config that was compiled. It doesn't change and is safe for many
// goroutines. The zero Policy has no rules and asks.
type Policy struct {
	mode        Mode
	allow, deny []Rule
	// denyCommands: a deny rule may be about a command.
	denyCommands bool
}

// Errors are all problems of a Config, in its order: mode, allow, deny.
//
//nolint:errname // the word that a user of the package reads: policy.Errors
type Errors struct{ List []*RuleError }

// Error has a line for each problem.
func (e *Errors) Error() string {
	lines := make([]string, len(e.List))
	for i, problem := range e.List {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Compile checks a Config. Its error is an *Errors with all that is wrong.
func Compile(c Config) (*Policy, error) {
	p := &Policy{mode: c.Mode}
	var bad Errors
	if !c.Mode.valid() {
		bad.List = append(bad.List, &RuleError{
			List: "mode", Rule: string(c.Mode),
			Text: fmt.Sprintf("the mode must be one of %s, not %q", strings.Join(Modes(), ", "), c.Mode),
		})
	}
	compile := func(list string, texts []string) []Rule {
		out := make([]Rule, 0, len(texts))
		for i, text := range texts {
			r, err := ParseRule(text)
			if problem, ok := errors.AsType[*RuleError](err); ok {
				problem.List, problem.Index = list, i
				bad.List = append(bad.List, problem)
				continue
			}
			out = append(out, r)
		}
		return out
	}
	p.allow, p.deny = compile("allow", c.Allow), compile("deny", c.Deny)
	if len(bad.List) > 0 {
		return nil, &bad
	}
	for _, r := range p.deny {
		if !isKind(r.name) || r.name == kindExecute {
			p.denyCommands = true
		}
	}
	return p, nil
}

// Mode is the policy's mode.
func (p *Policy) Mode() Mode {
	if p.mode == "" {
		return ModeDefault
	}
	return p.mode
}

// Scope is what a session adds to a policy.
type Scope struct {
	// Cwd is the session's directory, an absolute path. Without it no path is inside.
	Cwd string
	// Rules are the session's own, made by 'allow for this session'.
	Rules []Rule
	// Mode of the session; empty: the policy's.
	Mode Mode
	// AllowBypass permits ModeBypass: the worker was started with it.
	AllowBypass bool
}

// Verdict is what was decided.
type Verdict int

// The verdicts. The zero value asks: nothing is allowed by a value that was forgotten.
const (
	Ask Verdict = iota
	Allow
	Deny
)

// String is the verdict as a word.
func (v Verdict) String() string {
	switch v {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	case Ask:
	}
	return "ask"
}

// Decision is the answer about a call.
type Decision struct {
	Verdict Verdict
	// Reason is a sentence for the model or the person who is asked: which rule or mode.
	// It quotes rules, never the call.
	Reason string
	// Rule is what decided, as it was written. Empty when the mode did. Where several
	// rules allowed the parts of a call, the first of them.
	Rule string
	// BypassRefused: the mode is ModeBypass and the worker doesn't permit it, so that the
	// call was treated as in ModeDefault.
	BypassRefused bool
}

// Decide decides a call.
func (p *Policy) Decide(c Call, s Scope) Decision {
	a := examine(&c, s.Cwd)
	for i := range p.deny {
		for j := range a.subjects {
			if a.subjects[j].deniedBy(&p.deny[i], a) {
				text := p.deny[i].text
				return Decision{Verdict: Deny, Rule: text, Reason: "The rule 'deny " + text + "' forbids this."}
			}
		}
		// A rule without a pattern means every call of its kind or tool.
		if r := &p.deny[i]; r.bare && (r.names(a.kind, a.tool, false) || r.names(a.stated, a.tool, false)) {
			return Decision{Verdict: Deny, Rule: r.text, Reason: "The rule 'deny " + r.text + "' forbids this."}
		}
	}
	mode := s.Mode
	if mode == "" {
		mode = p.Mode()
	}
	refused := mode == ModeBypass && !s.AllowBypass
	if refused {
		mode = ModeDefault
	}
	d := p.allowed(a, s.Rules, mode)
	if d.Verdict != Allow {
		d = p.byMode(a, mode)
	}
	d.BypassRefused = refused
	return d
}

// allowed allows when every subject is allowed by a rule; edits in the session's
// directory by ModeAcceptEdits too.
func (p *Policy) allowed(a *about, session []Rule, mode Mode) Decision {
	if a.unsafe != "" {
		return Decision{}
	}
	rule, some := "", false
	for i := range a.subjects {
		s := &a.subjects[i]
		if s.suspect {
			continue
		}
		some = true
		by := firstAllow(p.allow, s, a.tool)
		if by == nil {
			by = firstAllow(session, s, a.tool)
		}
		switch {
		case by != nil && rule == "":
			rule = by.text
		case by == nil && (mode != ModeAcceptEdits || !s.ordinaryEdit()):
			return Decision{}
		}
	}
	switch {
	case !some:
		return Decision{}
	case rule == "":
		return Decision{Verdict: Allow, Reason: "The mode accept_edits allows edits in the session's directory."}
	}
	return Decision{Verdict: Allow, Rule: rule, Reason: "The rule 'allow " + rule + "' allows this."}
}

// ordinaryEdit is an edit in the session's directory that gives no power beyond it.
func (s *subject) ordinaryEdit() bool {
	return s.sort == aboutPath && s.kind == kindEdit && s.at.known && s.at.inside && !powerful(s.at.text)
}

func firstAllow(rules []Rule, s *subject, tool string) *Rule {
	for i := range rules {
		if s.allowedBy(&rules[i], tool) {
			return &rules[i]
		}
	}
	return nil
}

// byMode decides what no rule does.
func (p *Policy) byMode(a *about, mode Mode) Decision {
	why := ""
	if a.unsafe != "" {
		why = " No rule can allow it: " + a.unsafe + "."
	}
	switch mode {
	case ModePlan:
		if changing(a.kind) {
			return Decision{Verdict: Deny, Reason: "The mode plan forbids what may change something." + why}
		}
	case ModeDontAsk:
		return Decision{Verdict: Deny, Reason: "No rule allows this, and the mode dont_ask asks nobody." + why}
	case ModeBypass:
		if (!a.opaque || !p.denyCommands) && (!a.doubtful || len(p.deny) == 0) {
			return Decision{Verdict: Allow, Reason: "The mode bypass allows what no rule denies."}
		}
		return Decision{Verdict: Ask, Reason: "The mode bypass asks where deny rules can't see what would run." + why}
	case ModeDefault, ModeAcceptEdits:
	}
	return Decision{Verdict: Ask, Reason: "No rule decides this." + why}
}
