package subjects

import (
	"bytes"
	"encoding/json"
	"iter"
	"time"
)

// OwnType says what the last message of a lane's own subject is.
type OwnType string

// The own messages.
const (
	OwnClaim    OwnType = "claim"
	OwnBid      OwnType = "bid"
	OwnReleased OwnType = "released"
)

// Owner is who serves a lane. Epoch is the sequence of the first claim by this
// owner; it is 0 in that first claim itself, since nobody knows it before it is stored.
type Owner struct {
	Instance Instance `json:"instance"`
	Epoch    uint64   `json:"epoch,omitempty"`
}

// Own is the body of a message on a lane's own subject.
type Own struct {
	Type OwnType `json:"type"`
	// Owner is the claimer, or the last owner of a released lane.
	Owner Owner `json:"owner"`
	// Bidder is set on a bid; Owner is then the one that doesn't answer.
	Bidder Instance `json:"bidder,omitempty"`
}

// WorkerOp is what a worker is asked on its own subject.
type WorkerOp string

// The worker requests.
const (
	// WorkerOffer hands the worker the baton of a lane that it may own.
	WorkerOffer WorkerOp = "offer"
	// WorkerHome hands the worker the baton of a lane without an owner whose session's
	// agent has its state there.
	WorkerHome WorkerOp = "home"
	// WorkerLanes asks for a list of the lanes in its table.
	WorkerLanes WorkerOp = "lanes"
)

// WorkerRequest is the body of a request to rf.F.worker.<instance>.
type WorkerRequest struct {
	Op WorkerOp `json:"op"`
	// Offer and home only.
	Raider     Raider `json:"raider,omitempty"`
	Class      Class  `json:"class,omitempty"`
	Lane       LaneID `json:"lane,omitempty"`
	Epoch      uint64 `json:"epoch,omitempty"`
	BatonReply string `json:"baton_reply,omitempty"`
	BatonSeq   uint64 `json:"baton_seq,omitempty"`
}

// OfferAnswer is a worker's answer to an offer.
type OfferAnswer string

// The offer answers.
const (
	// OfferMine: the lane is in the table; the owner goes on with this baton.
	OfferMine OfferAnswer = "mine"
	// OfferGone: not in the table, or in a release, and its process tree is gone.
	OfferGone OfferAnswer = "gone"
	// OfferFull: no room for a lane whose home this is; whoever asked serves it.
	OfferFull OfferAnswer = "full"
)

// WorkerReply is the body of the answer to a WorkerRequest.
type WorkerReply struct {
	Offer OfferAnswer  `json:"offer,omitempty"`
	Lanes []LaneStatus `json:"lanes,omitempty"`
	Error string       `json:"error,omitempty"`
}

// LaneStatus is what a worker says of a lane that it owns.
type LaneStatus struct {
	Lane      LaneID    `json:"lane"`
	Raider    Raider    `json:"raider"`
	Session   SessionID `json:"session,omitempty"`
	Principal Principal `json:"principal,omitempty"`
	Prompt    PromptID  `json:"prompt,omitempty"`
	Instance  Instance  `json:"worker"`
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	// State is "starting", "running", "waiting for approval", "warm" or "releasing".
	State     string    `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	LastEvent time.Time `json:"last_event,omitzero"`
	Epoch     uint64    `json:"epoch"`
}

// ControlOp is what the owner of a lane is asked.
type ControlOp string

// The control requests.
const (
	// ControlCancel ends the run of Prompt; its cancel mark has been written before.
	ControlCancel ControlOp = "cancel"
	// ControlAnswer decides an ask.
	ControlAnswer ControlOp = "answer"
	// ControlClose ends the session's raider process; state closing was written before.
	ControlClose ControlOp = "close"
	// ControlReset forgets the agent's session: what runs goes on, the session's next run
	// starts a new process and a new session in it. The record of it was deleted before.
	ControlReset ControlOp = "reset"
	// ControlSet sets a mode or an option in the session's process, once for each Call.
	ControlSet ControlOp = "set"
)

// ControlRequest is the body of a request to rf.F.control.<lane>.
type ControlRequest struct {
	Op        ControlOp `json:"op"`
	Principal Principal `json:"principal"`
	Session   SessionID `json:"session"`
	Prompt    PromptID  `json:"prompt,omitempty"`
	Ask       AskID     `json:"ask,omitempty"`
	// Outcome is the raw outcome of session/request_permission, on an answer only.
	Outcome json.RawMessage `json:"outcome,omitempty"`
	// By names who answered, for the record: an attachment, "cli", … On a set it is
	// SettingsBody.Origin.
	By string `json:"by,omitempty"`
	// On a set only: Call names it, so that one that comes again is done once. Method and
	// Params are as in a Wish; Wish is its number when it is one.
	Call   string          `json:"call,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Wish   uint64          `json:"wish,omitempty"`
}

// ControlReply is the body of the answer. An empty Error means that it was done.
type ControlReply struct {
	Error string `json:"error,omitempty"`
	// Decided is true when an answer came after the ask had been decided, and of a close or
	// a set when the session has no raider here any more.
	Decided bool `json:"decided,omitempty"`
	// Result is the raider's raw answer to a set, Fault its error.
	Result json.RawMessage `json:"result,omitempty"`
	Fault  *RunError       `json:"fault,omitempty"`
}

// AttachedReply is a front door's answer on rf.F.attached.<session>.
type AttachedReply struct {
	FrontDoor   Instance     `json:"front_door"`
	Attachments []Attachment `json:"attachments"`
}

// RunState is the state of a run record.
type RunState string

// The run states. All but running are ends.
const (
	RunRunning   RunState = "running"
	RunCompleted RunState = "completed"
	RunFailed    RunState = "failed"
	RunCancelled RunState = "cancelled"
	RunRefused   RunState = "refused"
)

// Ended says whether s is an end.
func (s RunState) Ended() bool { return s != RunRunning && s != "" }

// Outcome is how a prompt ended, in its run record and as the body of its outcome event.
type Outcome struct {
	Prompt PromptID `json:"prompt"`
	State  RunState `json:"outcome"`
	// StopReason is the raider's, on completed.
	StopReason string `json:"stop_reason,omitempty"`
	// Result is the raider's raw answer to session/prompt, on completed.
	Result json.RawMessage `json:"result,omitempty"`
	// Error says why, on failed and refused.
	Error  *RunError `json:"error,omitempty"`
	Worker Instance  `json:"worker,omitempty"`
	// Payload names the object that holds the whole outcome when that is too large for a
	// message; what stands here is then cut.
	Payload string `json:"payload,omitempty"`
	// LastEpoch and LastN name the last event of the run; 0, 0 when it wrote none.
	LastEpoch uint64 `json:"last_epoch,omitempty"`
	LastN     uint64 `json:"last_n,omitempty"`
}

// RunError is the text that a client may see, with the raider's own code and data.
type RunError struct {
	Message string          `json:"message"`
	Code    int64           `json:"code,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// RunRecord is the value of RUNS <prompt>: the truth about a prompt.
type RunRecord struct {
	State     RunState  `json:"state"`
	Session   SessionID `json:"session"`
	Principal Principal `json:"principal"`
	Raider    Raider    `json:"raider"`
	Lane      LaneID    `json:"lane"`
	Owner     Owner     `json:"owner,omitzero"`
	// Attempt counts from 1.
	Attempt int       `json:"attempt,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Outcome is set when State is an end.
	Outcome *Outcome `json:"outcome,omitempty"`
}

// CancelMark is the value of RUNS <prompt>.cancel.
type CancelMark struct {
	By   string    `json:"by"`
	Time time.Time `json:"time"`
}

// SessionState is the state of a session.
type SessionState string

// The session states.
const (
	SessionOpen    SessionState = "open"
	SessionClosing SessionState = "closing"
	SessionClosed  SessionState = "closed"
	// SessionDeleted is final: what is left of the session is being erased.
	SessionDeleted SessionState = "deleted"
)

// SessionMeta is the value of SESSIONS <principal>.<session>.meta; front doors write it.
type SessionMeta struct {
	Session   SessionID `json:"session"`
	Principal Principal `json:"principal"`
	Raider    Raider    `json:"raider"`
	// Slot is the seat, such as "1bjorn", or empty.
	Slot string `json:"slot,omitempty"`
	// SlotsOwn: prompts that are spawned to the slot in this directory go on in it.
	SlotsOwn bool         `json:"slots_own,omitempty"`
	Lane     LaneID       `json:"lane"`
	Class    Class        `json:"class"`
	State    SessionState `json:"state"`
	Cwd      string       `json:"cwd"`
	// AdditionalDirectories and MCPServers are as the client gave them.
	AdditionalDirectories []string        `json:"additional_directories,omitempty"`
	MCPServers            json.RawMessage `json:"mcp_servers,omitempty"`
	Title                 string          `json:"title,omitempty"`
	// Wishes are what was chosen while there was no process, Wished is the N of the last one
	// that there ever was.
	Wishes  []Wish    `json:"wishes,omitempty"`
	Wished  uint64    `json:"wished,omitempty"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// Binding names what the session's agent belongs to: "acp:<session>" or "slot:<slot>".
func (m SessionMeta) Binding() string {
	if m.Slot != "" {
		return "slot:" + m.Slot
	}
	return "acp:" + string(m.Session)
}

// SessionAgent is the value of SESSIONS <principal>.<session>.agent; workers write it.
type SessionAgent struct {
	// InnerID is the session's id inside the agent. It may change.
	InnerID string `json:"inner_id,omitempty"`
	// Home is the worker name that has the agent's state.
	Home string `json:"home,omitempty"`
	// CanLoad says whether the agent offers session/load.
	CanLoad bool `json:"can_load,omitempty"`
	// Rules are the session's permission rules (allow_always).
	Rules []string `json:"rules,omitempty"`
	// Settings are what the agent offers, and what is chosen now: it is set again when the
	// agent's process starts again.
	Settings Settings `json:"settings,omitzero"`
	// Commands is the agent's last available_commands_update, raw.
	Commands json.RawMessage `json:"commands,omitempty"`
	// Settled is the N of the last Wish that has been applied.
	Settled uint64 `json:"settled,omitempty"`
}

// NodeState is a process's state in NODES.
type NodeState string

// The node states.
const (
	NodeUp       NodeState = "up"
	NodeDraining NodeState = "draining"
	// NodeGoodbye: the process has ended and nothing that it started runs.
	NodeGoodbye NodeState = "goodbye"
)

// NodeRole is what a process does.
type NodeRole string

// The roles.
const (
	RoleWorker    NodeRole = "worker"
	RoleFrontDoor NodeRole = "frontdoor"
)

// Node is the value of NODES <instance>.
type Node struct {
	Role     NodeRole  `json:"role"`
	Name     string    `json:"name"`
	Instance Instance  `json:"instance"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	State    NodeState `json:"state"`
	Started  time.Time `json:"started"`
	// Workers only.
	Capacity int      `json:"capacity,omitempty"`
	MaxWarm  int      `json:"max_warm,omitempty"`
	Running  int      `json:"running,omitempty"`
	Warm     int      `json:"warm,omitempty"`
	Raiders  []Raider `json:"raiders,omitempty"`
	// Agents are what the raiders' agents said of themselves, of those that were asked.
	Agents map[Raider]Agent `json:"agents,omitempty"`
	// Front doors only.
	Listen      string `json:"listen,omitempty"`
	Attachments int    `json:"attachments,omitempty"`
}

// Agent is what a raider's agent answered to initialize, raw.
type Agent struct {
	// Capabilities is agentCapabilities.
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	// Info is agentInfo.
	Info json.RawMessage `json:"info,omitempty"`
	// AuthMethods is authMethods.
	AuthMethods json.RawMessage `json:"auth_methods,omitempty"`
	// Settings are what it offered in its last new session.
	Settings Settings `json:"settings,omitzero"`
}

// Updates are the updates in the body of an EventUpdate event: the params of one or more
// session/update, raw, one a line. A worker gathers what its raider sends faster than it
// can be stored.
func Updates(body []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		for line := range bytes.SplitSeq(body, []byte{'\n'}) {
			if !yield(line) {
				return
			}
		}
	}
}

// UserMessage is the body of an EventUser event.
type UserMessage struct {
	// Prompt is the raw array of content blocks.
	Prompt json.RawMessage `json:"prompt"`
	// Origin is "<front door> <attachment>": that client does not see its own message.
	Origin string    `json:"origin,omitempty"`
	Time   time.Time `json:"time"`
}

// AskBody is the body of an EventAsk event and of an ASKS entry.
type AskBody struct {
	Ask       AskID     `json:"ask"`
	Session   SessionID `json:"session"`
	Principal Principal `json:"principal"`
	Raider    Raider    `json:"raider"`
	Lane      LaneID    `json:"lane"`
	Prompt    PromptID  `json:"prompt"`
	Owner     Owner     `json:"owner"`
	// Request is the raw params of session/request_permission with the fleet's session id.
	Request json.RawMessage `json:"request"`
	Time    time.Time       `json:"time"`
	// Deadline is zero when the ask waits for ever.
	Deadline time.Time `json:"deadline,omitzero"`
}

// AskDone is the body of an EventAskDone event.
type AskDone struct {
	Ask     AskID           `json:"ask"`
	Outcome json.RawMessage `json:"outcome"`
	// Why is "answered", "timeout", "cancelled", "no client", "owner lost".
	Why string `json:"why"`
	By  string `json:"by,omitempty"`
}

// Note is the body of an EventNote event.
type Note struct {
	// Type is a fleet event kind, such as session.error.
	Type    FleetEventKind `json:"type"`
	Binding string         `json:"binding,omitempty"`
	Error   string         `json:"error,omitempty"`
	Run     PromptID       `json:"run,omitempty"`
	// Text is what may be shown to a person.
	Text string `json:"text,omitempty"`
}

// TranscriptEntry is the body of a message on rf.F.transcript.<session>: one run.
type TranscriptEntry struct {
	Prompt PromptID `json:"prompt,omitempty"`
	// First and Last are the EVENTS sequences that the entry covers.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Parts are of a long run the names of bodies in PAYLOADS, each an array as Updates is,
	// and before it.
	Parts []string `json:"parts,omitempty"`
	// Updates are raw session/update params, compacted, in order; the user's
	// message comes first as user_message_chunk.
	Updates []json.RawMessage `json:"updates"`
	Outcome *Outcome          `json:"outcome,omitempty"`
}

// UserChunk renders a content block of a user's message as the params of session/update.
func UserChunk(s SessionID, block json.RawMessage) json.RawMessage {
	return append(append(append([]byte(`{"sessionId":"`+string(s)+`","update":{"sessionUpdate":"user_message_chunk","content":`), block...), '}'), '}')
}

// TextChunk renders a text chunk as the params of session/update. messageID may be empty.
func TextChunk(s SessionID, kind, messageID, text string) json.RawMessage {
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	body, err := json.Marshal(struct {
		Session SessionID `json:"sessionId"`
		Update  struct {
			Kind      string  `json:"sessionUpdate"`
			MessageID string  `json:"messageId,omitempty"`
			Content   content `json:"content"`
		} `json:"update"`
	}{Session: s, Update: struct {
		Kind      string  `json:"sessionUpdate"`
		MessageID string  `json:"messageId,omitempty"`
		Content   content `json:"content"`
	}{kind, messageID, content{"text", text}}})
	if err != nil {
		return json.RawMessage(`{}`) // strings always marshal
	}
	return body
}
