package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
)

// toolSteps is how many steps a shown tool call has: called, running, completed.
const toolSteps = 3

// What comes of an ask, in the words that the demo says.
const (
	allowedOnce   = "allowed once"
	allowedAlways = "allowed always"
	rejected      = "rejected"
	cancelled     = "cancelled"
	noAnswer      = "no answer: "
)

// voice is how a turn speaks: as an agent on an ACP connection, or in the lines of a
// stream raider. The words are the same on both.
type voice interface {
	say(text string) error
	// repeated gives a function that says text, made for saying it many times.
	repeated(text string) (func() error, error)
	think(text string) error
	// tool shows step 0 to toolSteps-1 of the tool call id.
	tool(id string, step int) error
	plan(entries []map[string]string) error
	// ask wants a permission and gives one of the words above.
	ask(ctx context.Context, id, title string) (string, error)
	// raw sends an update as it stands.
	raw(update json.RawMessage) error
	// call asks the client for something and gives its result or error, as JSON.
	call(ctx context.Context, method string, params json.RawMessage) (string, error)
	// notify sends a notification.
	notify(method string, params json.RawMessage) error
	// noise writes lines that are no protocol.
	noise(lines string) error
}

// acpVoice speaks ACP.
type acpVoice struct {
	conn    *rpc.Conn
	session string
	stdout  io.Writer
}

func (v acpVoice) say(text string) error { return v.update(chunk("agent_message_chunk", text)) }

func (v acpVoice) think(text string) error { return v.update(chunk("agent_thought_chunk", text)) }

func (v acpVoice) plan(entries []map[string]string) error {
	return v.update(map[string]any{"sessionUpdate": "plan", "entries": entries})
}

func (v acpVoice) raw(update json.RawMessage) error { return v.update(update) }

func (v acpVoice) update(update any) error { return notify(v.conn, v.session, update) }

func (v acpVoice) repeated(text string) (func() error, error) {
	params, err := updateParams(v.session, chunk("agent_message_chunk", text))
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := v.conn.Notify("session/update", params); err != nil {
			return fmt.Errorf("sending an update: %w", err)
		}
		return nil
	}, nil
}

func (v acpVoice) tool(id string, step int) error {
	return v.update([toolSteps]map[string]any{
		{
			"sessionUpdate": "tool_call", "toolCallId": id, "title": "Count to three", "kind": "execute",
			"status": "pending", "rawInput": map[string]int{"to": 3},
		},
		{"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress"},
		{
			"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed",
			"content": content("1 2 3"), "rawOutput": map[string]string{"text": "1 2 3"},
		},
	}[step])
}

func (v acpVoice) ask(ctx context.Context, id, title string) (string, error) {
	raw, err := v.conn.Call(ctx, "session/request_permission", map[string]any{
		"sessionId": v.session,
		"toolCall": map[string]any{
			"toolCallId": id, "title": title, "kind": "execute", "status": "pending",
			"rawInput": map[string]string{"command": "true"},
			"content":  content("The demo was told to ask."),
		},
		"options": []map[string]string{
			{"optionId": "allow_once", "name": "Allow once", "kind": "allow_once"},
			{"optionId": "allow_always", "name": "Allow always", "kind": "allow_always"},
			{"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
		},
	})
	var refused *rpc.Error
	switch {
	case errors.As(err, &refused):
		return noAnswer + refused.Message, nil
	case err != nil:
		return "", err
	}
	var answer struct {
		Outcome struct {
			Outcome  string `json:"outcome"`
			OptionID string `json:"optionId"`
		} `json:"outcome"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	// Only what was plainly allowed counts as allowed.
	switch o := answer.Outcome; {
	case o.Outcome == "selected" && o.OptionID == "allow_once":
		return allowedOnce, nil
	case o.Outcome == "selected" && o.OptionID == "allow_always":
		return allowedAlways, nil
	case o.Outcome == "cancelled":
		return cancelled, nil
	}
	return rejected, nil
}

func (v acpVoice) call(ctx context.Context, method string, params json.RawMessage) (string, error) {
	params, err := v.own(params)
	if err != nil {
		return "", err
	}
	result, err := v.conn.Call(ctx, method, params)
	if fault, ok := errors.AsType[*rpc.Error](err); ok {
		return fmt.Sprintf("error %d: %s", fault.Code, fault.Message), nil
	}
	return string(result), err
}

func (v acpVoice) notify(method string, params json.RawMessage) error {
	params, err := v.own(params)
	if err != nil {
		return err
	}
	return v.conn.Notify(method, params)
}

// own are params with the session's id where they name none.
func (v acpVoice) own(params json.RawMessage) (json.RawMessage, error) {
	if _, ok := rawjson.Get(params, "sessionId"); ok {
		return params, nil
	}
	id, err := json.Marshal(v.session)
	if err != nil {
		return nil, err
	}
	if params, err = rawjson.Set(params, "sessionId", id); err != nil {
		return nil, &failError{"params must be a JSON object"}
	}
	return params, nil
}

func (v acpVoice) noise(lines string) error {
	if _, err := io.WriteString(v.stdout, lines); err != nil {
		return fmt.Errorf("writing noise: %w", err)
	}
	return nil
}

// content is a tool call's content with one text.
func content(text string) []map[string]any {
	return []map[string]any{{"type": "content", "content": textBlock(text)}}
}

// chunk is a session update that carries text.
func chunk(kind, text string) map[string]any {
	return map[string]any{"sessionUpdate": kind, "content": textBlock(text)}
}

func textBlock(text string) map[string]string {
	return map[string]string{"type": "text", "text": text}
}

// notify sends a session update; a json.RawMessage passes as it is.
func notify(c *rpc.Conn, session string, update any) error {
	params, err := updateParams(session, update)
	if err != nil {
		return err
	}
	if err := c.Notify("session/update", params); err != nil {
		return fmt.Errorf("sending an update: %w", err)
	}
	return nil
}

func updateParams(session string, update any) (json.RawMessage, error) {
	id, err := json.Marshal(session)
	if err != nil {
		return nil, fmt.Errorf("encoding an update: %w", err)
	}
	raw, ok := update.(json.RawMessage)
	if !ok {
		if raw, err = json.Marshal(update); err != nil {
			return nil, fmt.Errorf("encoding an update: %w", err)
		}
	}
	params := append(json.RawMessage(`{"sessionId":`), id...)
	params = append(append(params, `,"update":`...), raw...)
	return append(params, '}'), nil
}
