//go:build unix

package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"raiderfleet/internal/rpc"
)

// The options of a question, their kinds in ACP, and the decisions in an answer are the
// same words.
const (
	allowOnce   = "allow_once"
	allowAlways = "allow_always"
	rejectOnce  = "reject_once"
)

// question is what a command asks: whether it may call a tool.
type question struct {
	ID     json.RawMessage `json:"id"`
	Call   string          `json:"call"` // the id of its tool.call, if there is one
	Tool   string          `json:"tool"`
	Title  string          `json:"title"`
	Kind   string          `json:"kind"`
	Input  json.RawMessage `json:"input"`
	Reason string          `json:"reason"`
	Rule   string          `json:"rule"` // what allow_always would allow; empty: it is not offered
}

// decision is the answer to a question.
type decision struct {
	ID       json.RawMessage `json:"id"`
	Decision string          `json:"decision"`
	Rule     string          `json:"rule,omitempty"`   // with allow_always
	Reason   string          `json:"reason,omitempty"` // why it is refused
}

func refusal(id json.RawMessage, reason string) decision {
	return decision{ID: id, Decision: rejectOnce, Reason: reason}
}

// parseQuestion reads a line of the socket. problem says what is wrong with it, and the
// question then has its id if that could be read.
func parseQuestion(line []byte) (q question, problem string) {
	var only struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(line, &only) != nil {
		return question{}, "the line is no JSON object"
	}
	if len(only.ID) == 0 || only.ID[0] != '"' && only.ID[0] != '-' && (only.ID[0] < '0' || only.ID[0] > '9') {
		return question{}, "the question has no id (a string or a number)"
	}
	if err := json.Unmarshal(line, &q); err != nil {
		return question{ID: only.ID}, "a field of the question is of the wrong type"
	}
	if q.Tool == "" && q.Title == "" {
		return question{ID: only.ID}, "the question names no tool"
	}
	return q, ""
}

// permissionRequest is session/request_permission.
type permissionRequest struct {
	SessionID string             `json:"sessionId"`
	ToolCall  permissionToolCall `json:"toolCall"`
	Options   []permissionOption `json:"options"`
}

type permissionToolCall struct {
	ToolCallID string          `json:"toolCallId"`
	Title      string          `json:"title"`
	Kind       string          `json:"kind"`
	Status     string          `json:"status"`
	Content    []toolContent   `json:"content,omitempty"`
	RawInput   json.RawMessage `json:"rawInput,omitempty"`
}

type permissionOption struct {
	OptionID string `json:"optionId"`
	Name     string `json:"name"`
	Kind     string `json:"kind"`
}

// request is the question as ACP has it.
func (q question) request(session, toolCall string) permissionRequest {
	options := []permissionOption{{allowOnce, "Allow once", allowOnce}}
	if q.Rule != "" {
		options = append(options, permissionOption{allowAlways, "Allow for this session: " + q.Rule, allowAlways})
	}
	return permissionRequest{
		SessionID: session,
		ToolCall: permissionToolCall{
			ToolCallID: toolCall, Title: toolTitle(q.Title, q.Tool, q.Input), Kind: toolKind(q.Kind, q.Tool),
			Status: "pending", Content: textContent(q.Reason), RawInput: q.Input,
		},
		Options: append(options, permissionOption{rejectOnce, "Reject", rejectOnce}),
	}
}

// decide reads the outcome of a question. Only an option that allows and was offered does;
// everything else refuses.
func (q question) decide(ctx context.Context, result json.RawMessage, err error) decision {
	var answer struct {
		Outcome struct {
			Outcome  string `json:"outcome"`
			OptionID string `json:"optionId"`
		} `json:"outcome"`
		Meta struct {
			// Reason is why the fleet answered, where no person did.
			Reason string `json:"raiderfleet/reason"`
		} `json:"_meta"`
	}
	var fault *rpc.Error
	switch {
	case ctx.Err() != nil:
		return refusal(q.ID, "cancelled")
	case errors.As(err, &fault):
		return refusal(q.ID, "nobody could be asked: "+fault.Message)
	case err != nil:
		return refusal(q.ID, "nobody could be asked")
	case json.Unmarshal(result, &answer) != nil:
		return refusal(q.ID, "the answer could not be read")
	}
	switch o := answer.Outcome; {
	case o.Outcome == "cancelled":
		return refusal(q.ID, cmp.Or(answer.Meta.Reason, "cancelled"))
	case o.Outcome != "selected":
		return refusal(q.ID, "the answer could not be read")
	case o.OptionID == allowOnce:
		return decision{ID: q.ID, Decision: allowOnce}
	case o.OptionID == allowAlways && q.Rule != "":
		return decision{ID: q.ID, Decision: allowAlways, Rule: q.Rule}
	case o.OptionID == rejectOnce:
		return refusal(q.ID, cmp.Or(answer.Meta.Reason, "rejected"))
	}
	return refusal(q.ID, "the answer was none of the options")
}
