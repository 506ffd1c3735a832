package subjects

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrToken is wrapped by every error about a word that can't be a subject token.
var ErrToken = errors.New("not a valid subject token")

// The token types. Each is one NATS subject token: no dot, blank, wildcard or
// control character. Only the Parse functions and the New functions make them;
// their zero value is invalid.
type (
	// Fleet names all processes that work together. Default "default".
	Fleet string
	// Raider names an agent definition.
	Raider string
	// LaneID is "slot-<n>NAME" or "sess-<session>".
	LaneID string
	// SessionID names a session. Unguessable, never used twice.
	SessionID string
	// PromptID names an accepted prompt.
	PromptID string
	// Principal is who is allowed. "local" where nobody signed in.
	Principal string
	// Instance is a worker's or front door's name plus a random part, new at every start.
	Instance string
	// Attachment is a client's hold on a session at one front door.
	Attachment string
	// Class is what a worker must fit to serve a lane. "any" for now.
	Class string
	// AskID names a permission request of a raider.
	AskID string
)

// LocalPrincipal is the principal where nobody signed in.
const LocalPrincipal Principal = "local"

// AnyClass is the class that every worker fits.
const AnyClass Class = "any"

// maxTokenLength bounds every token, in bytes. A session's is shorter, so that the lane
// that is named after it fits.
const (
	maxTokenLength   = 128
	sessionLane      = "sess-"
	slotLane         = "slot-"
	maxSessionLength = maxTokenLength - len(sessionLane)
)

var slotPattern = regexp.MustCompile(`^[0-9]+[a-z][-a-z0-9]*$`)

// wellFormed is ^[A-Za-z0-9][-A-Za-z0-9_]*$, by hand: each event has several tokens.
func wellFormed(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '-' || c == '_'):
		default:
			return false
		}
	}
	return s != ""
}

func checkToken(what, s string) error {
	if len(s) > maxTokenLength || !wellFormed(s) {
		return fmt.Errorf("%s %q: %w: use letters, digits, '-' and '_', at most %d", what, shorten(s), ErrToken, maxTokenLength)
	}
	return nil
}

// shorten keeps a refused word from filling the log.
func shorten(s string) string {
	if len(s) > maxTokenLength {
		return s[:maxTokenLength] + "…"
	}
	return s
}

func parse[T ~string](what, s string) (T, error) {
	if err := checkToken(what, s); err != nil {
		return "", err
	}
	return T(s), nil
}

// ParseFleet checks a fleet name.
func ParseFleet(s string) (Fleet, error) { return parse[Fleet]("fleet", s) }

// ParseRaider checks a raider name. A hall takes any; only one of lower case letters,
// digits and '-' can have slots, see IsSlot.
func ParseRaider(s string) (Raider, error) { return parse[Raider]("raider", s) }

// ParseLane checks a lane id.
func ParseLane(s string) (LaneID, error) {
	if err := checkToken("lane", s); err != nil {
		return "", err
	}
	if slot, ok := strings.CutPrefix(s, slotLane); ok && slotPattern.MatchString(slot) {
		return LaneID(s), nil
	}
	if session, ok := strings.CutPrefix(s, sessionLane); ok {
		if _, err := ParseSession(session); err == nil {
			return LaneID(s), nil
		}
	}
	return "", fmt.Errorf("lane %q: %w: want slot-<n>NAME or sess-<session>", s, ErrToken)
}

// ParseSession checks a session id. It says nothing about whether the session exists.
func ParseSession(s string) (SessionID, error) {
	if len(s) > maxSessionLength {
		return "", fmt.Errorf("session %q: %w: at most %d characters", shorten(s), ErrToken, maxSessionLength)
	}
	return parse[SessionID]("session", s)
}

// ParsePrompt checks a prompt id.
func ParsePrompt(s string) (PromptID, error) { return parse[PromptID]("prompt", s) }

// ParsePrincipal checks a principal.
func ParsePrincipal(s string) (Principal, error) { return parse[Principal]("principal", s) }

// ParseInstance checks an instance id.
func ParseInstance(s string) (Instance, error) { return parse[Instance]("instance", s) }

// ParseAttachment checks an attachment id.
func ParseAttachment(s string) (Attachment, error) { return parse[Attachment]("attachment", s) }

// ParseClass checks a class.
func ParseClass(s string) (Class, error) { return parse[Class]("class", s) }

// ParseAsk checks an ask id.
func ParseAsk(s string) (AskID, error) { return parse[AskID]("ask", s) }

// SlotLane is the lane of a slot, such as "1bjorn".
func SlotLane(slot string) (LaneID, error) { return ParseLane(slotLane + slot) }

// SessionLane is the lane of a session that is bound to no slot.
func SessionLane(s SessionID) LaneID { return LaneID(sessionLane + string(s)) }

// Session returns the session whose lane it is; false for a slot's lane.
func (l LaneID) Session() (SessionID, bool) {
	id, ok := strings.CutPrefix(string(l), sessionLane)
	return SessionID(id), ok
}

// Slot returns the slot whose lane it is; false for a session's lane.
func (l LaneID) Slot() (string, bool) { return strings.CutPrefix(string(l), slotLane) }

// IsSlot says whether name has the form of a slot, `^\d+[a-z][-a-z0-9]*$`, and
// returns the raider that it is a seat of.
func IsSlot(name string) (raider string, ok bool) {
	if !slotPattern.MatchString(name) {
		return "", false
	}
	return strings.TrimLeft(name, "0123456789"), true
}

func random(prefix string) string {
	var b [20]byte
	// crypto/rand.Read never fails: it ends the process instead.
	_, _ = rand.Read(b[:])
	return prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// NewSession makes an unguessable session id (160 random bits).
func NewSession() SessionID { return SessionID(random("s")) }

// NewPrompt makes a prompt id.
func NewPrompt() PromptID { return PromptID(random("p")) }

// NewAttachment makes an attachment id.
func NewAttachment() Attachment { return Attachment(random("a")) }

// NewAsk makes an ask id.
func NewAsk() AskID { return AskID(random("k")) }

// NewInstance makes the instance id of a process called name, new at every start.
func NewInstance(name string) (Instance, error) {
	if len(name) > 80 {
		name = name[:80]
	}
	return ParseInstance(name + "-" + random("")[:13])
}
