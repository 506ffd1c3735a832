package worker

import (
	"log/slog"
	"time"

	"raiderfleet/internal/policy"
	"raiderfleet/subjects"
)

// Config says what a worker serves. Zero values are the defaults.
type Config struct {
	// Name of the worker, a subject token. Default "worker".
	Name string
	// Version goes to raiders as clientInfo.
	Version string
	// StateDir holds the worker's lock. Required. One worker at a time uses it.
	StateDir string
	// Exe is the argv prefix that starts the shim. Default {os.Executable(), "shim"}.
	Exe []string
	// Capacity is how many runs are live at once. Default 4.
	Capacity int
	// MaxWarm is how many raider processes there may be, live ones included. Default
	// 4 × Capacity; never below Capacity.
	MaxWarm int
	// Raiders that this worker serves.
	Raiders []Raider
	// PermissionTimeout bounds how long an ask waits; 0 waits for ever.
	PermissionTimeout time.Duration
	// CancelGrace lies between the steps of a cancellation; 0 never escalates.
	CancelGrace time.Duration
	// ReconnectGrace is how long an ask waits after its last client has gone. Default 15 s.
	ReconnectGrace time.Duration
	// AllowBypass permits policies of the mode bypass.
	AllowBypass bool
	// IdleTTL is how long a raider process stays after its last run. Default 10 min.
	IdleTTL time.Duration
	// KeepEvents is of how many ended runs of a session the events are kept, besides the
	// transcript, which has all; 0: as long as their stream does.
	KeepEvents int
	// MaxLogSize bounds what is kept of a session's stderr on this worker, in bytes; 0: as
	// long as its stream does.
	MaxLogSize int64
	// DrainTimeout is what live runs get when the worker is told to end. Default 60 s.
	DrainTimeout time.Duration
	Logger       *slog.Logger
}

// Kind says what stands behind a raider's command.
type Kind string

// The kinds of raiders. Both speak ACP on stdio.
const (
	// KindACP: an agent, one process for a session.
	KindACP Kind = "acp"
	// KindStream: the adapter of a command that is run once for each prompt. It passes
	// signals on to the command, and takes a session/cancel for SIGINT.
	KindStream Kind = "stream"
)

// Raider is an agent definition.
type Raider struct {
	Name subjects.Raider
	// Kind is KindACP (default) or KindStream.
	Kind Kind
	// Command is the whole argv of an agent that speaks ACP on stdio.
	Command []string
	// Env is added to the raider's environment; PassEnv names variables of the worker
	// that the raider gets. Nothing else but a few harmless ones is passed.
	Env     map[string]string
	PassEnv []string
	// Cwd overrides the session's working directory.
	Cwd string
	// FallbackCwd stands in for a session's directory that isn't there: a client may be on
	// another machine. Empty: its prompts are refused.
	FallbackCwd string
	// OnWorkerLoss is "fail" (default) or "retry".
	OnWorkerLoss string
	// MaxAttempts bounds retries. Default 3.
	MaxAttempts int
	// Agent is what is known of the agent without asking it; nil: nothing.
	Agent *subjects.Agent
	// Probe: the agent is asked at the worker's start what it can.
	Probe bool
	// ClientMethods says who answers what the raider asks of a client besides permissions:
	// ClientMethodsClient (default), ClientMethodsWorker or ClientMethodsRefuse.
	ClientMethods string
	// Policy decides the raider's tool calls before anybody is asked. Default: all asks.
	Policy *policy.Policy
	// TranscriptBudget bounds what an agent is given of a conversation that it can't load,
	// in bytes; 0: nothing.
	TranscriptBudget int
	// MaxRunning bounds this raider's live runs on this worker; 0: only Capacity does.
	MaxRunning int
	// IdleTTL overrides Config.IdleTTL when it is not 0.
	IdleTTL time.Duration
}
