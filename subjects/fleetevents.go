package subjects

import "time"

// FleetEventKind is what happened: two tokens, subject and verb.
type FleetEventKind string

// The fleet events. Nothing depends on their arrival: one may be missed, or come twice
// when its cause is told again by the next owner of a lane.
const (
	// RaiderQueued: a prompt was accepted.
	RaiderQueued FleetEventKind = "raider.queued"
	// RaiderWaiting: a prompt did not start at once; Place and Of say where it stands.
	RaiderWaiting FleetEventKind = "raider.waiting"
	// RaiderSpawned: a prompt's run has a raider process, a new one or a Warm one.
	RaiderSpawned FleetEventKind = "raider.spawned"
	// RaiderAsked and RaiderAnswered: a raider asked for permission; it was decided.
	RaiderAsked    FleetEventKind = "raider.asked"
	RaiderAnswered FleetEventKind = "raider.answered"
	// RaiderDone: a prompt has ended; Outcome says how.
	RaiderDone FleetEventKind = "raider.done"
	// RaiderRefused: a prompt was refused, nothing has run.
	RaiderRefused FleetEventKind = "raider.refused"
	// SessionBound: the agent has made a session of its own for ours.
	SessionBound FleetEventKind = "session.bound"
	// SessionReset: the agent's session was forgotten; the next prompt starts a new one.
	SessionReset FleetEventKind = "session.reset"
	// SessionError: the agent's earlier session could not be had; the run goes on without.
	SessionError FleetEventKind = "session.error"
	// WorkerJoined, WorkerDraining and WorkerLeft: a worker serves, takes no more, has ended.
	WorkerJoined   FleetEventKind = "worker.joined"
	WorkerDraining FleetEventKind = "worker.draining"
	WorkerLeft     FleetEventKind = "worker.left"
	// FrontDoorJoined and FrontDoorLeft: a front door serves, has ended.
	FrontDoorJoined FleetEventKind = "frontdoor.joined"
	FrontDoorLeft   FleetEventKind = "frontdoor.left"
)

// FleetEvent is the body of a message on rf.F.fleet.<kind>. No text of a conversation is
// in it.
type FleetEvent struct {
	Kind      FleetEventKind `json:"type"`
	Time      time.Time      `json:"time"`
	Raider    Raider         `json:"raider,omitempty"`
	Lane      LaneID         `json:"lane,omitempty"`
	Session   SessionID      `json:"session,omitempty"`
	Principal Principal      `json:"principal,omitempty"`
	Prompt    PromptID       `json:"prompt,omitempty"`
	Instance  Instance       `json:"worker,omitempty"`
	// FrontDoor took the prompt, or is the one that came or went.
	FrontDoor Instance `json:"front_door,omitempty"`
	Host      string   `json:"host,omitempty"`
	PID       int      `json:"pid,omitempty"`
	// Warm: the raider process was there already.
	Warm bool `json:"warm,omitempty"`
	// Place is how many are before a waiting prompt, the running one included, of Of.
	Place      int      `json:"place,omitempty"`
	Of         int      `json:"of,omitempty"`
	Outcome    RunState `json:"outcome,omitempty"`
	StopReason string   `json:"stop_reason,omitempty"`
	// Binding is "acp:<session>" or "slot:<slot>": what the agent's session belongs to.
	Binding string `json:"binding,omitempty"`
	Error   string `json:"error,omitempty"`
	// Ask, Tool (the kind of the tool call), Why and By are of raider.asked and .answered.
	Ask  AskID  `json:"ask,omitempty"`
	Tool string `json:"tool,omitempty"`
	Why  string `json:"why,omitempty"`
	By   string `json:"by,omitempty"`
	// Raiders that a worker or front door serves, on joined.
	Raiders []Raider `json:"raiders,omitempty"`
}
