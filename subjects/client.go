package subjects

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Header names of what goes between a raider and a client.
const (
	// HeaderClient is what the client of a prompt said it can do: the JSON of ACP's
	// clientCapabilities.
	HeaderClient = "Rf-Client"
	// HeaderOp is a ClientOp.
	HeaderOp = "Rf-Op"
	// HeaderCall names a call, for its cancel.
	HeaderCall = "Rf-Call"
	// HeaderMethod is a method of ACP as a JSON string: an extension's may hold anything.
	HeaderMethod = "Rf-Method"
	// HeaderState is a ClientState.
	HeaderState = "Rf-State"
)

// ClientOp is what a worker wants of a client.
type ClientOp string

// What is wanted of a client.
const (
	// ClientCall: its answer.
	ClientCall ClientOp = "call"
	// ClientNotify: that it takes a notification. The front door answers when it is written.
	ClientNotify ClientOp = "notify"
	// ClientCancel: a call's answer is not wanted any more. Not answered.
	ClientCancel ClientOp = "cancel"
	// ClientOpened: the session's raider has been opened, or can't be. Not answered. It is
	// for the front door alone; Call is the id of the open.
	ClientOpened ClientOp = "opened"
)

// ClientHeader is the header of a message on rf.F.client.<frontdoor>.<attachment>; its data
// are the params, raw, with the fleet's session id.
type ClientHeader struct {
	Op      ClientOp
	Call    string
	Session SessionID
	// Prompt runs, or ran last.
	Prompt PromptID
	Method string
	// Payload names the object with params that are too large for a message.
	Payload string
	// LastEpoch and LastN name the session's event that is to be shown before.
	LastEpoch, LastN uint64
}

// Header renders h.
func (h ClientHeader) Header() nats.Header {
	n := nats.Header{}
	n.Set(HeaderOp, string(h.Op))
	n.Set(HeaderCall, h.Call)
	n.Set(HeaderSession, string(h.Session))
	if h.Prompt != "" {
		n.Set(HeaderPrompt, string(h.Prompt))
	}
	if method, err := json.Marshal(h.Method); err == nil {
		n.Set(HeaderMethod, string(method))
	}
	if h.Payload != "" {
		n.Set(HeaderPayload, h.Payload)
	}
	if h.LastEpoch > 0 {
		n.Set(HeaderLastEpoch, strconv.FormatUint(h.LastEpoch, 10))
		n.Set(HeaderLastN, strconv.FormatUint(h.LastN, 10))
	}
	return n
}

// ParseClientHeader is the reverse of ClientHeader.Header.
func ParseClientHeader(n nats.Header) (ClientHeader, error) {
	h := ClientHeader{Op: ClientOp(n.Get(HeaderOp)), Call: n.Get(HeaderCall), Payload: n.Get(HeaderPayload)}
	switch h.Op {
	case ClientCall, ClientNotify, ClientCancel, ClientOpened:
	default:
		return ClientHeader{}, fmt.Errorf("header %s: unknown %q", HeaderOp, shorten(string(h.Op)))
	}
	if h.Call == "" {
		return ClientHeader{}, fmt.Errorf("header %s is missing", HeaderCall)
	}
	if err := json.Unmarshal([]byte(n.Get(HeaderMethod)), &h.Method); err != nil {
		return ClientHeader{}, fmt.Errorf("header %s: %w", HeaderMethod, err)
	}
	var err error
	if n.Get(HeaderLastEpoch) != "" {
		var first error
		h.LastEpoch, first = strconv.ParseUint(n.Get(HeaderLastEpoch), 10, 64)
		h.LastN, err = strconv.ParseUint(n.Get(HeaderLastN), 10, 64)
		err = errors.Join(first, err)
	}
	err = errors.Join(err,
		required(&h.Session, n.Get(HeaderSession), ParseSession),
		optional(&h.Prompt, n.Get(HeaderPrompt), ParsePrompt),
	)
	if err != nil {
		return ClientHeader{}, err
	}
	return h, nil
}

// ClientState is how a client's answer stands.
type ClientState string

// What a front door answers; see ClientHeader.
const (
	// ClientWorking: the client has the request and is still connected. It comes again
	// every few seconds, as a request: who waits answers it, and a call that nobody waits
	// for is taken back.
	ClientWorking ClientState = "working"
	// ClientDone: the data are the result, raw, or the object that HeaderPayload names.
	ClientDone ClientState = "done"
	// ClientFault: the data are the client's error object, raw.
	ClientFault ClientState = "fault"
	// ClientUnable: the client did not get it: it has not said that it can, or has
	// answered 'method not found' before.
	ClientUnable ClientState = "unable"
	// ClientGone: the client is not there, or went while it had it.
	ClientGone ClientState = "gone"
)
