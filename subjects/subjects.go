package subjects

import (
	"fmt"
	"strings"
)

// root is "rf.<fleet>".
func (f Fleet) root() string { return "rf." + string(f) }

func (f Fleet) join(tokens ...string) string { return f.root() + "." + strings.Join(tokens, ".") }

// split returns the tokens after rf.<fleet>.<kind>, exactly n of them.
func (f Fleet) split(subject, kind string, n int) ([]string, error) {
	rest, ok := strings.CutPrefix(subject, f.root()+"."+kind+".")
	if !ok {
		return nil, fmt.Errorf("subject %q is not under %s.%s", subject, f.root(), kind)
	}
	tokens := strings.Split(rest, ".")
	if len(tokens) != n {
		return nil, fmt.Errorf("subject %q: want %d tokens after %s.%s", subject, n, f.root(), kind)
	}
	return tokens, nil
}

func (f Fleet) parseRaiderLane(subject, kind string) (Raider, LaneID, error) {
	t, err := f.split(subject, kind, 2)
	if err != nil {
		return "", "", err
	}
	return pair(t, ParseRaider, ParseLane)
}

// pair parses two tokens; beside an error both are empty.
func pair[A, B ~string](t []string, first func(string) (A, error), second func(string) (B, error)) (A, B, error) {
	a, err := first(t[0])
	if err != nil {
		return "", "", err
	}
	b, err := second(t[1])
	if err != nil {
		return "", "", err
	}
	return a, b, nil
}

// laneOf is a subject of a lane's prompts. A slot's has the principal too: the stream
// bounds each subject, and so nobody's prompts can shut the others out of a slot. A session
// has one principal anyway, and reads by a literal subject are cheaper.
func (f Fleet) laneOf(kind string, r Raider, l LaneID, principal string) string {
	if _, slot := l.Slot(); slot {
		return f.join(kind, string(r), string(l), principal)
	}
	return f.join(kind, string(r), string(l))
}

// parseLaneOf is the reverse of laneOf; the principal is empty on a session's lane.
func (f Fleet) parseLaneOf(subject, kind string) (Raider, LaneID, Principal, error) {
	t, err := f.split(subject, kind, 2)
	if err != nil {
		if t, err = f.split(subject, kind, 3); err != nil {
			return "", "", "", err
		}
	}
	r, l, err := pair(t[:2], ParseRaider, ParseLane)
	if err != nil {
		return "", "", "", err
	}
	if _, slot := l.Slot(); slot != (len(t) == 3) {
		return "", "", "", fmt.Errorf("subject %q: a slot's has a principal, a session's has none", subject)
	}
	if len(t) == 2 {
		return r, l, "", nil
	}
	p, err := ParsePrincipal(t[2])
	if err != nil {
		return "", "", "", err
	}
	return r, l, p, nil
}

// Backlog is where a principal's waiting prompts of a lane are kept; on a session's lane
// the principal makes no difference. rf.default.backlog.bjorn.slot-1bjorn.local
func (f Fleet) Backlog(r Raider, l LaneID, p Principal) string {
	return f.laneOf("backlog", r, l, string(p))
}

// BacklogLane is the filter of a lane: in the order of their sequences its messages are
// the lane's prompts. rf.default.backlog.bjorn.slot-1bjorn.*
func (f Fleet) BacklogLane(r Raider, l LaneID) string { return f.laneOf("backlog", r, l, "*") }

// BacklogAll is the filter of all lanes. rf.default.backlog.>
func (f Fleet) BacklogAll() string { return f.join("backlog", ">") }

// BacklogRaider is the filter of a raider's lanes. rf.default.backlog.bjorn.>
func (f Fleet) BacklogRaider(r Raider) string { return f.join("backlog", string(r), ">") }

// ParseBacklog is the reverse of Backlog. The principal is empty on a session's lane.
func (f Fleet) ParseBacklog(subject string) (Raider, LaneID, Principal, error) {
	return f.parseLaneOf(subject, "backlog")
}

// Wake is where the headers of each stored prompt of a lane are published again.
// rf.default.wake.bjorn.slot-1bjorn.local
func (f Fleet) Wake(r Raider, l LaneID, p Principal) string { return f.laneOf("wake", r, l, string(p)) }

// WakeLane is the filter of a lane. rf.default.wake.bjorn.slot-1bjorn.*
func (f Fleet) WakeLane(r Raider, l LaneID) string { return f.laneOf("wake", r, l, "*") }

// WakeAll is the filter of all lanes. rf.default.wake.>
func (f Fleet) WakeAll() string { return f.join("wake", ">") }

// ParseWake is the reverse of Wake. The principal is empty on a session's lane.
func (f Fleet) ParseWake(subject string) (Raider, LaneID, Principal, error) {
	return f.parseLaneOf(subject, "wake")
}

// Ready is where the baton of a lane lies. rf.default.ready.bjorn.any.slot-1bjorn
func (f Fleet) Ready(r Raider, c Class, l LaneID) string {
	return f.join("ready", string(r), string(c), string(l))
}

// ReadyAll is the filter of all batons. rf.default.ready.>
func (f Fleet) ReadyAll() string { return f.join("ready", ">") }

// ReadyClass is the filter of a consumer: the batons of one raider and class.
// rf.default.ready.bjorn.any.>
func (f Fleet) ReadyClass(r Raider, c Class) string {
	return f.join("ready", string(r), string(c), ">")
}

// ParseReady is the reverse of Ready.
func (f Fleet) ParseReady(subject string) (Raider, Class, LaneID, error) {
	t, err := f.split(subject, "ready", 3)
	if err != nil {
		return "", "", "", err
	}
	r, c, err := pair(t[:2], ParseRaider, ParseClass)
	if err != nil {
		return "", "", "", err
	}
	l, err := ParseLane(t[2])
	if err != nil {
		return "", "", "", err
	}
	return r, c, l, nil
}

// Own holds a lane's claim, bid or release. rf.default.own.bjorn.slot-1bjorn
func (f Fleet) Own(r Raider, l LaneID) string { return f.join("own", string(r), string(l)) }

// OwnAll is the filter of all claims. rf.default.own.>
func (f Fleet) OwnAll() string { return f.join("own", ">") }

// ParseOwn is the reverse of Own.
func (f Fleet) ParseOwn(subject string) (Raider, LaneID, error) {
	return f.parseRaiderLane(subject, "own")
}

// Event is where all that a client may see of a session is stored. rf.default.event.sxyz
func (f Fleet) Event(s SessionID) string { return f.join("event", string(s)) }

// EventAll is the filter of all sessions. rf.default.event.>
func (f Fleet) EventAll() string { return f.join("event", ">") }

// ParseEvent is the reverse of Event.
func (f Fleet) ParseEvent(subject string) (SessionID, error) { return f.parseSession(subject, "event") }

// Live is where stored events are published again. rf.default.live.sxyz
func (f Fleet) Live(s SessionID) string { return f.join("live", string(s)) }

// LiveAll is the filter of all sessions. rf.default.live.>
func (f Fleet) LiveAll() string { return f.join("live", ">") }

// ParseLive is the reverse of Live.
func (f Fleet) ParseLive(subject string) (SessionID, error) { return f.parseSession(subject, "live") }

// Transcript holds a session's conversation. rf.default.transcript.sxyz
func (f Fleet) Transcript(s SessionID) string { return f.join("transcript", string(s)) }

// TranscriptAll is the filter of all sessions. rf.default.transcript.>
func (f Fleet) TranscriptAll() string { return f.join("transcript", ">") }

// ParseTranscript is the reverse of Transcript.
func (f Fleet) ParseTranscript(subject string) (SessionID, error) {
	return f.parseSession(subject, "transcript")
}

func (f Fleet) parseSession(subject, kind string) (SessionID, error) {
	t, err := f.split(subject, kind, 1)
	if err != nil {
		return "", err
	}
	return ParseSession(t[0])
}

// Log is where a raider's stderr is stored. rf.default.log.w1-abc.sxyz
func (f Fleet) Log(w Instance, s SessionID) string { return f.join("log", string(w), string(s)) }

// LogAll is the filter of all logs. rf.default.log.>
func (f Fleet) LogAll() string { return f.join("log", ">") }

// LogSession is the filter of one session's logs on all workers. rf.default.log.*.sxyz
func (f Fleet) LogSession(s SessionID) string { return f.join("log", "*", string(s)) }

// ParseLog is the reverse of Log.
func (f Fleet) ParseLog(subject string) (Instance, SessionID, error) {
	t, err := f.split(subject, "log", 2)
	if err != nil {
		return "", "", err
	}
	return pair(t, ParseInstance, ParseSession)
}

// Control reaches the owner of a lane (core request). rf.default.control.slot-1bjorn
func (f Fleet) Control(l LaneID) string { return f.join("control", string(l)) }

// ControlAll is the filter of all lanes. rf.default.control.>
func (f Fleet) ControlAll() string { return f.join("control", ">") }

// ParseControl is the reverse of Control.
func (f Fleet) ParseControl(subject string) (LaneID, error) {
	t, err := f.split(subject, "control", 1)
	if err != nil {
		return "", err
	}
	return ParseLane(t[0])
}

// Worker reaches one worker instance (core request). rf.default.worker.w1-abc
func (f Fleet) Worker(w Instance) string { return f.join("worker", string(w)) }

// WorkerAll is the filter of all workers. rf.default.worker.>
func (f Fleet) WorkerAll() string { return f.join("worker", ">") }

// ParseWorker is the reverse of Worker.
func (f Fleet) ParseWorker(subject string) (Instance, error) {
	t, err := f.split(subject, "worker", 1)
	if err != nil {
		return "", err
	}
	return ParseInstance(t[0])
}

// Client reaches one attachment at one front door (core request).
// rf.default.client.fd-abc.axyz
func (f Fleet) Client(d Instance, a Attachment) string { return f.join("client", string(d), string(a)) }

// ClientFrontDoor is the filter of all attachments at one front door. rf.default.client.fd-abc.*
func (f Fleet) ClientFrontDoor(d Instance) string { return f.join("client", string(d), "*") }

// ParseClient is the reverse of Client.
func (f Fleet) ParseClient(subject string) (Instance, Attachment, error) {
	t, err := f.split(subject, "client", 2)
	if err != nil {
		return "", "", err
	}
	return pair(t, ParseInstance, ParseAttachment)
}

// Attached is answered by every front door that has a client attached to the
// session (core request); no responder means that the last client is gone.
// rf.default.attached.sxyz
func (f Fleet) Attached(s SessionID) string { return f.join("attached", string(s)) }

// AttachedAll is the filter of all sessions. rf.default.attached.>
func (f Fleet) AttachedAll() string { return f.join("attached", ">") }

// ParseAttached is the reverse of Attached.
func (f Fleet) ParseAttached(subject string) (SessionID, error) {
	return f.parseSession(subject, "attached")
}

// FleetEvent carries one kind of fleet event (core), such as "raider.queued".
// rf.default.fleet.raider.queued
func (f Fleet) FleetEvent(kind FleetEventKind) string { return f.join("fleet", string(kind)) }

// FleetEventAll is the filter of all fleet events. rf.default.fleet.>
func (f Fleet) FleetEventAll() string { return f.join("fleet", ">") }

// ParseFleetEvent is the reverse of FleetEvent.
func (f Fleet) ParseFleetEvent(subject string) (FleetEventKind, error) {
	t, err := f.split(subject, "fleet", 2)
	if err != nil {
		return "", err
	}
	for _, token := range t {
		if err := checkToken("fleet event", token); err != nil {
			return "", err
		}
	}
	return FleetEventKind(strings.Join(t, ".")), nil
}
