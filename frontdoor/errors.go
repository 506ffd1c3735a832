package frontdoor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// codeRun is the code of a prompt that failed or was refused. ACP uses it for
// 'authentication required' as well; data.raiderfleet tells the two apart.
const codeRun = -32000

// errPayloads: a large prompt's body could not be stored.
var errPayloads = errors.New("the prompt's body is not stored")

// errNoLink: there was no link to NATS in the time that a request has.
var errNoLink = errors.New("no link to NATS")

// fault maps an error to what the client may see. What is not meant for clients becomes
// a safe text and an id, under which the log has the cause.
func (f *FrontDoor) fault(err error, attrs ...any) *rpc.Error {
	if known, ok := errors.AsType[*rpc.Error](err); ok {
		return known
	}
	id := strings.ToLower(rand.Text()[:12])
	text := "internal error " + id
	switch {
	case errors.Is(err, errNoLink), errors.Is(err, bus.ErrDisconnected):
		text = "the fleet can't be reached, error " + id
	case errors.Is(err, bus.ErrNoSpace):
		text = "the fleet's NATS has no space left, error " + id
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders), bus.NoStream(err):
		text = "the fleet's NATS does not answer, error " + id
	}
	f.log.With(attrs...).Error("request failed", "error_id", id, "error", err)
	return &rpc.Error{
		Code: rpc.CodeInternal, Message: text,
		Data: object(map[string]any{"raiderfleet": map[string]string{"error_id": id}}),
	}
}

func invalidParams(format string, args ...any) *rpc.Error {
	return &rpc.Error{Code: rpc.CodeInvalidParams, Message: "invalid params: " + fmt.Sprintf(format, args...)}
}

// sessionNotFound is also the answer for a session of another principal.
func sessionNotFound(id string) *rpc.Error {
	return &rpc.Error{Code: rpc.CodeNotFound, Message: "session not found", Data: object(map[string]string{"sessionId": id})}
}

// sessionClosed is the answer to a prompt for a session that is closed, or being closed.
func sessionClosed(s subjects.SessionID) *rpc.Error {
	return &rpc.Error{
		Code: rpc.CodeNotFound, Message: "the session is closed; load it to open it again",
		Data: object(map[string]any{"sessionId": s}),
	}
}

// sessionClosing is the answer to a load that found the session being closed.
func sessionClosing(s subjects.SessionID) *rpc.Error {
	return &rpc.Error{
		Code: codeRun, Message: "the session is being closed; try again when its last turn has ended",
		Data: object(map[string]any{"sessionId": s, "raiderfleet": map[string]any{"session": s, "state": subjects.SessionClosing}}),
	}
}

// promptError is the answer to a prompt that failed or was refused.
func promptError(out subjects.Outcome) *rpc.Error {
	where := map[string]any{"outcome": out.State, "prompt": out.Prompt}
	if out.Worker != "" {
		where["worker"] = out.Worker
	}
	data := map[string]any{"raiderfleet": where}
	message := "the prompt " + string(out.State)
	if out.Error != nil {
		if out.Error.Message != "" {
			message = out.Error.Message
		}
		if out.Error.Code != 0 {
			data["code"] = out.Error.Code
		}
		if len(out.Error.Data) > 0 {
			data["data"] = out.Error.Data
		}
	}
	return &rpc.Error{Code: codeRun, Message: message, Data: object(data)}
}

// choiceRefused is the answer to a mode or an option that the raider refuses.
func choiceRefused(s subjects.SessionID, fault subjects.RunError) *rpc.Error {
	data := map[string]any{"raiderfleet": map[string]any{"session": s}, "code": fault.Code}
	if len(fault.Data) > 0 {
		data["data"] = fault.Data
	}
	return &rpc.Error{Code: codeRun, Message: fault.Message, Data: object(data)}
}

// object renders v, which always can be.
func object(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return text
}

// responder is a request that waits for its answer.
type responder interface {
	Reply(result any) error
	ReplyError(e *rpc.Error) error
}

// answer replies to a request; one that can't be sent has nobody who reads it.
func answer(log *slog.Logger, r responder, result any) {
	if err := r.Reply(result); err != nil {
		log.Debug("response not sent", "error", err)
	}
}

func answerError(log *slog.Logger, r responder, e *rpc.Error) {
	if err := r.ReplyError(e); err != nil {
		log.Debug("response not sent", "error", err)
	}
}
