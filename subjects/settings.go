package subjects

import "encoding/json"

// Settings are what a session's agent lets its clients choose, and what is chosen. Raw, as
// the agent wrote it; empty: it offers nothing.
type Settings struct {
	// Modes is ACP's modes: availableModes, currentModeId.
	Modes json.RawMessage `json:"modes,omitempty"`
	// Options is ACP's configOptions.
	Options json.RawMessage `json:"config_options,omitempty"`
}

// None says whether nothing can be chosen.
func (s Settings) None() bool { return len(s.Modes) == 0 && len(s.Options) == 0 }

// Wish is a choice that was made while the session had no process: it is applied when one
// starts.
type Wish struct {
	// N counts a session's wishes from 1. One that is at most SessionAgent.Settled has been
	// applied.
	N uint64 `json:"n"`
	// Method is session/set_mode or session/set_config_option, Params are the client's, raw.
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// The methods of a Wish.
const (
	MethodSetMode   = "session/set_mode"
	MethodSetOption = "session/set_config_option"
)

// SettingsBody is the body of an EventSettings event: what is chosen now, of modes or options
// or both. Clients are told as updates.
type SettingsBody struct {
	Modes   json.RawMessage `json:"modes,omitempty"`
	Options json.RawMessage `json:"config_options,omitempty"`
	// First: the session's agent has told for the first time. Only who was told something
	// else before needs to hear it.
	First bool `json:"first,omitempty"`
	// Origin is "<front door> <attachment>" of the client that chose: it has its answer.
	Origin string `json:"origin,omitempty"`
}
