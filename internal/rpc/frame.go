package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// appendRaw adds a JSON text to a frame. Line breaks between its tokens would
// cut the frame in two, so they go; else the text stays as it is.
func appendRaw(frame []byte, raw json.RawMessage) ([]byte, error) {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return append(frame, raw...), nil
	}
	b := bytes.NewBuffer(frame)
	if err := json.Compact(b, raw); err != nil {
		return nil, fmt.Errorf("rpc: value is not JSON: %w", err)
	}
	return b.Bytes(), nil
}

// encode gives the JSON text of v: a json.RawMessage as it is, anything else
// through encoding/json without HTML escapes. nil and an empty raw text give nil.
func encode(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if len(v) == 0 {
			return nil, nil
		}
		return v, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("rpc: encoding a value: %w", err)
	}
	return b.Bytes()[:b.Len()-1], nil
}

// methodFrame builds a notification (id nil) or a request, line feed included.
func methodFrame(id json.RawMessage, method string, params any) ([]byte, error) {
	raw, err := encode(params)
	if err != nil {
		return nil, err
	}
	name, err := encode(method)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 0, len(id)+len(name)+len(raw)+64)
	frame = append(frame, `{"jsonrpc":"2.0",`...)
	if id != nil {
		frame = append(append(append(frame, `"id":`...), id...), ',')
	}
	frame = append(append(frame, `"method":`...), name...)
	if raw != nil {
		frame = append(frame, `,"params":`...)
		if frame, err = appendRaw(frame, raw); err != nil {
			return nil, err
		}
	}
	return append(frame, '}', '\n'), nil
}

// resultFrame builds a response with a result; nil means null.
func resultFrame(id json.RawMessage, result any) ([]byte, error) {
	raw, err := encode(result)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		raw = json.RawMessage("null")
	}
	return responseFrame(id, `,"result":`, raw)
}

// errorFrame builds a response with an error; id nil means null.
func errorFrame(id json.RawMessage, e *Error) ([]byte, error) {
	raw, err := encode(struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}{e.Code, e.Message})
	if err != nil {
		return nil, err
	}
	if len(e.Data) > 0 { // by hand, since encoding/json would rewrite it
		raw = append(raw[:len(raw)-1], `,"data":`...)
		raw = append(append(raw, e.Data...), '}')
	}
	return responseFrame(id, `,"error":`, raw)
}

func responseFrame(id json.RawMessage, member string, raw json.RawMessage) ([]byte, error) {
	if id == nil {
		id = json.RawMessage("null")
	}
	frame := make([]byte, 0, len(id)+len(member)+len(raw)+32)
	frame = append(append(frame, `{"jsonrpc":"2.0","id":`...), id...)
	frame, err := appendRaw(append(frame, member...), raw)
	if err != nil {
		return nil, err
	}
	return append(frame, '}', '\n'), nil
}
