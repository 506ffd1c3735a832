package conformance

import (
	"encoding/json"
	"fmt"
)

// message is one line that the front door sent.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"` // nil when absent; "null" is an id
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`

	size int // of the line in bytes
}

// UnmarshalJSON keeps an id that is null apart from none, which encoding/json does not.
func (m *message) UnmarshalJSON(line []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return err
	}
	type plain struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
	}
	var p plain
	if err := json.Unmarshal(line, &p); err != nil {
		return err
	}
	*m = message{
		Version: p.Version, Method: p.Method, ID: fields["id"], Params: fields["params"],
		Result: fields["result"], Error: fields["error"], size: len(line),
	}
	return nil
}

// shape checks what JSON-RPC itself asks of a message.
func (m message) shape() error {
	switch {
	case m.Version != "2.0":
		return fmt.Errorf("jsonrpc is %q", m.Version)
	case m.Method != "" && (m.Result != nil || m.Error != nil):
		return fmt.Errorf("%s has a result", m.Method)
	case m.Method == "" && m.ID == nil:
		return fmt.Errorf("a response without an id")
	case m.Method == "" && (m.Result == nil) == (m.Error == nil):
		return fmt.Errorf("a response with result and error, or neither")
	}
	return nil
}

// fault is a JSON-RPC error.
type fault struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// story is what we add to the error of a prompt that failed or was refused.
type story struct {
	Fleet *struct {
		Outcome string `json:"outcome"`
		Prompt  string `json:"prompt"`
		Worker  string `json:"worker"`
	} `json:"raiderfleet"`
}

// update is what the tests look at in session/update.
type update struct {
	Session string `json:"sessionId"`
	Update  struct {
		Kind    string          `json:"sessionUpdate"`
		Content json.RawMessage `json:"content"` // an object in chunks, an array in tool calls
		Title   string          `json:"title"`
	} `json:"update"`
}

// text is a chunk's text.
func (u update) text() string {
	return decode[struct {
		Text string `json:"text"`
	}](u.Update.Content).Text
}

// decode is json.Unmarshal for what has been validated already.
func decode[T any](raw json.RawMessage) T {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(fmt.Sprintf("decode %T: %v", v, err))
	}
	return v
}

// text is the text that the updates of kind carry, in order.
func text(messages []message, kind string) string {
	var out string
	for _, m := range messages {
		if m.Method != "session/update" {
			continue
		}
		if u := decode[update](m.Params); u.Update.Kind == kind {
			out += u.text()
		}
	}
	return out
}
