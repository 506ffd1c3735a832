package subjects

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Header names. Times are RFC 3339 with nanoseconds, numbers decimal.
const (
	// HeaderPrompt is the prompt id; on a line of LOGS that of the run that wrote it.
	HeaderPrompt = "Rf-Prompt"
	// HeaderSession is the session id.
	HeaderSession = "Rf-Session"
	// HeaderPrincipal is the session's principal.
	HeaderPrincipal = "Rf-Principal"
	// HeaderOrigin is who sent the prompt: "<front door instance> <attachment>".
	HeaderOrigin = "Rf-Origin"
	// HeaderKind is a backlog message's or an event's kind.
	HeaderKind = "Rf-Kind"
	// HeaderPriority is a prompt's priority; only "normal" for now.
	HeaderPriority = "Rf-Priority"
	// HeaderNotBefore and HeaderExpires bound when a prompt may start.
	HeaderNotBefore = "Rf-Not-Before"
	HeaderExpires   = "Rf-Expires"
	// HeaderPayload names the object in PAYLOADS that holds the body.
	HeaderPayload = "Rf-Payload"
	// HeaderEpoch is the owner's epoch, HeaderN the count of the event within it.
	HeaderEpoch = "Rf-Epoch"
	HeaderN     = "Rf-N"
	// HeaderLastEpoch and HeaderLastN stand on an outcome event, which has no epoch
	// of its own: they name the last event of the run that must be shown before it.
	HeaderLastEpoch = "Rf-Last-Epoch"
	HeaderLastN     = "Rf-Last-N"
	// HeaderWorker is the instance that wrote the event.
	HeaderWorker = "Rf-Worker"
)

// PromptKind is what a backlog message asks for.
type PromptKind string

// The backlog kinds.
const (
	// KindPrompt runs a prompt.
	KindPrompt PromptKind = "prompt"
	// KindOpen opens the session's raider without a prompt. It is no promise: it has no run
	// record and no outcome, and may be withdrawn by deleting its message.
	KindOpen PromptKind = "open"
)

// EventKind says what an event's body is.
type EventKind string

// The event kinds. The body of each is in its comment.
const (
	// EventUpdate: the params of one or more session/update, one a line (Updates), raw, with
	// the fleet's session id.
	EventUpdate EventKind = "update"
	// EventUser: UserMessage. The first event of a run.
	EventUser EventKind = "user"
	// EventAsk: AskBody. A raider waits for an answer.
	EventAsk EventKind = "ask"
	// EventAskDone: AskDone. The ask has been decided.
	EventAskDone EventKind = "ask_done"
	// EventOutcome: Outcome. The prompt has ended.
	EventOutcome EventKind = "outcome"
	// EventNote: Note. Something a client may be told, such as session.error.
	EventNote EventKind = "note"
	// EventSettings: SettingsBody. Modes or options are others than clients were told.
	EventSettings EventKind = "settings"
	// EventExtension: an object with method and params, a notification of the raider that
	// is none of ACP's. Only clients that are there get it.
	EventExtension EventKind = "extension"
)

// PromptHeader is the header of a backlog message.
type PromptHeader struct {
	Prompt    PromptID
	Session   SessionID
	Principal Principal
	Origin    Origin
	Kind      PromptKind
	Priority  string
	Payload   string
	// Client is what the client said it can do, the JSON of ACP's clientCapabilities;
	// empty: nothing. It is one line.
	Client string
}

// Origin is the front door and attachment that sent a prompt.
type Origin struct {
	FrontDoor  Instance
	Attachment Attachment
}

// Header renders h.
func (h PromptHeader) Header() nats.Header {
	n := nats.Header{}
	n.Set(HeaderPrompt, string(h.Prompt))
	n.Set(HeaderSession, string(h.Session))
	n.Set(HeaderPrincipal, string(h.Principal))
	if h.Origin.FrontDoor != "" {
		// Without an attachment no blank at the end: NATS cuts it off on the way.
		n.Set(HeaderOrigin, strings.TrimSuffix(string(h.Origin.FrontDoor)+" "+string(h.Origin.Attachment), " "))
	}
	n.Set(HeaderKind, string(h.Kind))
	n.Set(HeaderPriority, h.Priority)
	if h.Payload != "" {
		n.Set(HeaderPayload, h.Payload)
	}
	if h.Client != "" {
		n.Set(HeaderClient, h.Client)
	}
	return n
}

// ParsePromptHeader is the reverse of PromptHeader.Header.
func ParsePromptHeader(n nats.Header) (PromptHeader, error) {
	h := PromptHeader{
		Kind:     PromptKind(n.Get(HeaderKind)),
		Priority: n.Get(HeaderPriority),
		Payload:  n.Get(HeaderPayload),
	}
	if client := n.Get(HeaderClient); json.Valid([]byte(client)) {
		h.Client = client
	}
	switch h.Kind {
	case KindPrompt, KindOpen:
	default:
		return PromptHeader{}, fmt.Errorf("header %s: unknown kind %q", HeaderKind, shorten(string(h.Kind)))
	}
	door, attachment, _ := strings.Cut(n.Get(HeaderOrigin), " ")
	err := errors.Join(
		required(&h.Prompt, n.Get(HeaderPrompt), ParsePrompt),
		required(&h.Session, n.Get(HeaderSession), ParseSession),
		required(&h.Principal, n.Get(HeaderPrincipal), ParsePrincipal),
		optional(&h.Origin.FrontDoor, door, ParseInstance),
		optional(&h.Origin.Attachment, attachment, ParseAttachment),
	)
	if err != nil {
		return PromptHeader{}, err
	}
	return h, nil
}

// required parses s into to.
func required[T ~string](to *T, s string, parse func(string) (T, error)) error {
	v, err := parse(s)
	*to = v
	return err
}

// optional is required for a header that may be missing.
func optional[T ~string](to *T, s string, parse func(string) (T, error)) error {
	if s == "" {
		return nil
	}
	return required(to, s, parse)
}

// EventHeader is the header of an event.
//
// Readers order by (Epoch, N), ignore a second copy, and drop an epoch below the
// highest seen. Epoch and N are 0 on events that no owner wrote (the outcome of a
// prompt that was cancelled while it waited) and on every outcome.
type EventHeader struct {
	Kind   EventKind
	Prompt PromptID // empty between turns
	Epoch  uint64
	N      uint64
	// LastEpoch and LastN stand on an outcome only.
	LastEpoch uint64
	LastN     uint64
	Worker    Instance
	Payload   string
}

// Header renders h.
func (h EventHeader) Header() nats.Header {
	n := nats.Header{}
	n.Set(HeaderKind, string(h.Kind))
	if h.Prompt != "" {
		n.Set(HeaderPrompt, string(h.Prompt))
	}
	set := func(name string, v uint64) {
		if v != 0 {
			n.Set(name, strconv.FormatUint(v, 10))
		}
	}
	set(HeaderEpoch, h.Epoch)
	set(HeaderN, h.N)
	set(HeaderLastEpoch, h.LastEpoch)
	set(HeaderLastN, h.LastN)
	if h.Worker != "" {
		n.Set(HeaderWorker, string(h.Worker))
	}
	if h.Payload != "" {
		n.Set(HeaderPayload, h.Payload)
	}
	return n
}

// ParseEventHeader is the reverse of EventHeader.Header. It accepts kinds that it
// does not know, so that an older front door passes over what a newer worker writes.
func ParseEventHeader(n nats.Header) (EventHeader, error) {
	h := EventHeader{Kind: EventKind(n.Get(HeaderKind)), Payload: n.Get(HeaderPayload)}
	if h.Kind == "" {
		return EventHeader{}, fmt.Errorf("header %s is missing", HeaderKind)
	}
	err := errors.Join(
		optional(&h.Prompt, n.Get(HeaderPrompt), ParsePrompt),
		optional(&h.Worker, n.Get(HeaderWorker), ParseInstance),
		count(&h.Epoch, n, HeaderEpoch), count(&h.N, n, HeaderN),
		count(&h.LastEpoch, n, HeaderLastEpoch), count(&h.LastN, n, HeaderLastN),
	)
	if err != nil {
		return EventHeader{}, err
	}
	return h, nil
}

// count parses the number in a header into to; missing means 0.
func count(to *uint64, n nats.Header, name string) error {
	s := n.Get(name)
	if s == "" {
		return nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("header %s: %q is not a number", name, shorten(s))
	}
	*to = v
	return nil
}
