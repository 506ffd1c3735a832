package subjects

import (
	"fmt"
	"strings"
)

// RunKey is the key of a prompt's run record in RUNS: the prompt id itself.
func RunKey(p PromptID) string { return string(p) }

// CancelKey is the key of a prompt's cancel mark in RUNS. <prompt>.cancel
func CancelKey(p PromptID) string { return string(p) + ".cancel" }

// ParseRunKey returns the prompt and whether the key is that of a cancel mark.
func ParseRunKey(key string) (p PromptID, cancel bool, err error) {
	id, cancel := strings.CutSuffix(key, ".cancel")
	if p, err = ParsePrompt(id); err != nil {
		return "", false, err
	}
	return p, cancel, nil
}

// MetaKey is the key of what the front door keeps of a session in SESSIONS.
// <principal>.<session>.meta
func MetaKey(p Principal, s SessionID) string { return string(p) + "." + string(s) + ".meta" }

// AgentKey is the key of what the worker keeps of a session in SESSIONS.
// <principal>.<session>.agent
func AgentKey(p Principal, s SessionID) string { return string(p) + "." + string(s) + ".agent" }

// AgentFilter is the key filter of what the worker keeps of a session, whosever it is.
// *.<session>.agent
func AgentFilter(s SessionID) string { return "*." + string(s) + ".agent" }

// MetaFilter is the key filter of all sessions of a principal. <principal>.*.meta
func MetaFilter(p Principal) string { return string(p) + ".*.meta" }

// MetaAllFilter is the key filter of all sessions, whosever they are. *.*.meta
func MetaAllFilter() string { return "*.*.meta" }

// MetaOfFilter is the key filter of what the front door keeps of a session, whosever it
// is. *.<session>.meta
func MetaOfFilter(s SessionID) string { return "*." + string(s) + ".meta" }

// AgentAllFilter is the key filter of what the workers keep of all sessions. *.*.agent
func AgentAllFilter() string { return "*.*.agent" }

// ParseSessionKey is the reverse of MetaKey and AgentKey; part is "meta" or "agent".
func ParseSessionKey(key string) (p Principal, s SessionID, part string, err error) {
	t := strings.Split(key, ".")
	if len(t) != 3 || (t[2] != "meta" && t[2] != "agent") {
		return "", "", "", fmt.Errorf("session key %q: want <principal>.<session>.meta or .agent", key)
	}
	if p, s, err = pair(t[:2], ParsePrincipal, ParseSession); err != nil {
		return "", "", "", err
	}
	return p, s, t[2], nil
}

// AskKey is the key of an open ask in ASKS. <session>.<ask>
func AskKey(s SessionID, a AskID) string { return string(s) + "." + string(a) }

// AskFilter is the key filter of a session's open asks. <session>.*
func AskFilter(s SessionID) string { return string(s) + ".*" }

// AskOfFilter is the key filter of an open ask, whichever session it is of. *.<ask>
func AskOfFilter(a AskID) string { return "*." + string(a) }

// ParseAskKey is the reverse of AskKey.
func ParseAskKey(key string) (SessionID, AskID, error) {
	t := strings.Split(key, ".")
	if len(t) != 2 {
		return "", "", fmt.Errorf("ask key %q: want <session>.<ask>", key)
	}
	return pair(t, ParseSession, ParseAsk)
}

// NodeKey is the key of a process's presence in NODES: its instance.
func NodeKey(i Instance) string { return string(i) }

// ParseNodeKey is the reverse of NodeKey. It refuses SweepKey.
func ParseNodeKey(key string) (Instance, error) { return ParseInstance(key) }

// SweepKey is the key of the sweeper's lease in NODES.
const SweepKey = "lease.sweep"
