package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"raiderfleet/internal/policy"
	"raiderfleet/subjects"
)

// The kinds of raiders.
const (
	// KindACP is an agent that speaks ACP on stdio.
	KindACP = "acp"
	// KindStream is a command that is run once for each prompt and writes JSON Lines;
	// without a command it is the hall's own raider.
	KindStream = "stream"
	// KindDemo is the built-in raider: no model, no network.
	KindDemo = "demo"
)

// The values of Raider.ClientMethods.
const (
	// ClientMethodsClient: a client of the session answers the raider's requests.
	ClientMethodsClient = "client"
	// ClientMethodsWorker: files and terminals are those of the worker's host.
	ClientMethodsWorker = "worker"
	// ClientMethodsRefuse: they are refused, and the raider is told so beforehand.
	ClientMethodsRefuse = "refuse"
)

// The values of Raider.Open.
const (
	// OpenEager: a session's agent is started at session/new.
	OpenEager = "eager"
	// OpenLazy: with the session's first prompt.
	OpenLazy = "lazy"
)

// The values of Raider.OnWorkerLoss.
const (
	LossFail  = "fail"
	LossRetry = "retry"
)

// Raider defines an agent.
type Raider struct {
	// Name is letters, digits, '-' and '_'. One with others than small letters, digits and
	// '-' has no slots.
	Name string
	// Kind is KindACP (default), KindStream or KindDemo.
	Kind string
	// Command is the argv of an acp or stream raider. That of a stream raider has
	// placeholders, see Placeholders; without one it is the hall's own raider.
	Command []string
	// Engine, Model, Persona and Packs are told to a stream raider. Default none.
	Engine, Model, Persona string
	Packs                  []string
	// Permissions as they are written, Policy what they mean. Policy is never nil after
	// Load.
	Permissions Permissions
	Policy      *policy.Policy
	// Env is set for the raider. The values may be secret: don't log them.
	Env map[string]string
	// PassEnv names variables of the worker that the raider gets too.
	PassEnv []string
	// Cwd is where the raider is started, an absolute path. Default the session's.
	Cwd string
	// Description is a line for people.
	Description string
	// ClientMethods is ClientMethodsClient (default), ClientMethodsWorker or
	// ClientMethodsRefuse.
	ClientMethods string
	// Open is OpenEager (default) or OpenLazy.
	Open string
	// OnWorkerLoss is LossFail (default) or LossRetry.
	OnWorkerLoss string
	// MaxAttempts bounds the tries with LossRetry. Default 3.
	MaxAttempts int
	// TranscriptBudget bounds what an agent is given of a conversation that it can't load,
	// in bytes; 0: nothing. Default 64 KiB.
	TranscriptBudget Size
	// MaxRunning bounds the live runs on a worker. Default 0: only its capacity does.
	MaxRunning int
	// IdleTTL overrides Config.IdleTTL. Default nil.
	IdleTTL *time.Duration
	// Line of the file where the raider begins; 0 for the built-in one.
	Line int
}

// Permissions are the rules for a raider's tool calls; docs/permissions.md has their
// syntax.
type Permissions struct {
	// Mode decides what no rule does: default, plan, accept_edits, dont_ask or bypass.
	// Default "default".
	Mode string
	// Allow and Deny are rules. Default none.
	Allow, Deny []string
}

// HallOwn says whether the raider is the hall's own: `raider`, started by the worker with
// arguments that it knows.
func (r *Raider) HallOwn() bool { return r.Kind == KindStream && len(r.Command) == 0 }

// Raider returns the raider with that very name.
func (c *Config) Raider(name string) (*Raider, bool) {
	for i := range c.Raiders {
		if c.Raiders[i].Name == name {
			return &c.Raiders[i], true
		}
	}
	return nil, false
}

// RaiderNames lists the raiders in the order of the file.
func (c *Config) RaiderNames() []string {
	names := make([]string, len(c.Raiders))
	for i, r := range c.Raiders {
		names[i] = r.Name
	}
	return names
}

// Target is what a raider name in a request means.
type Target struct {
	// Raider is the configured name.
	Raider string
	// Slot is the seat ("1bjorn"), empty for a plain raider.
	Slot string
}

// UnknownRaiderError says that a name is neither a raider nor a slot of one.
type UnknownRaiderError struct {
	Name string
	// Known are the configured names.
	Known []string
}

// Error names the raiders that there are.
func (e *UnknownRaiderError) Error() string {
	return fmt.Sprintf("unknown raider %q%s (configured: %s)", e.Name, suggest(e.Name, e.Known), strings.Join(e.Known, ", "))
}

// ResolveRaider says which raider or slot a name means. A raider that is configured
// under that very name wins over a slot; an empty name is the first raider. The
// error is an *UnknownRaiderError.
func (c *Config) ResolveRaider(name string) (Target, error) {
	if name == "" {
		return Target{Raider: c.Raiders[0].Name}, nil
	}
	if _, ok := c.Raider(name); ok {
		return Target{Raider: name}, nil
	}
	if base, ok := subjects.IsSlot(name); ok {
		_, known := c.Raider(base)
		// A number without end would not fit a subject.
		if _, err := subjects.SlotLane(name); known && err == nil {
			return Target{Raider: base, Slot: name}, nil
		}
	}
	return Target{}, &UnknownRaiderError{Name: name, Known: c.RaiderNames()}
}

func checkCommand(r *Raider) string {
	switch {
	case r.Kind == KindDemo && len(r.Command) > 0:
		return "is not for kind demo: a demo raider is the program itself"
	case r.Kind == KindACP && len(r.Command) == 0:
		return "must be given for kind acp: a list such as [my-agent, --acp]"
	case len(r.Command) > 0 && r.Command[0] == "":
		return "the first word is the program and can't be empty"
	case r.Kind == KindStream:
		return checkPlaceholders(r.Command)
	}
	return ""
}

func validEnvName(s string) bool {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(s)
}

func checkEnv(r *Raider) string {
	var bad []string
	for name := range r.Env {
		if !validEnvName(name) {
			bad = append(bad, name)
		}
	}
	if len(bad) == 0 {
		return ""
	}
	slices.Sort(bad)
	return "not a variable's name: " + quoteAll(bad)
}

func checkPassEnv(r *Raider) string {
	for _, name := range r.PassEnv {
		if strings.Contains(name, "=") {
			return "takes names only; a value belongs into env"
		}
		if !validEnvName(name) {
			return fmt.Sprintf("not a variable's name: %q", name)
		}
	}
	return ""
}
