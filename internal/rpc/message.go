package rpc

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"raiderfleet/internal/rawjson"
)

type kind int

const (
	kindBlank kind = iota
	kindNotification
	kindRequest
	kindResponse
	kindIgnored // a notification that breaks the rules: there is nobody to answer
	kindInvalid
)

// message is one line, classified. The texts share memory with the line.
type message struct {
	kind   kind
	noise  bool // not an object with "jsonrpc":"2.0"
	id     json.RawMessage
	method string
	params json.RawMessage
	result json.RawMessage
	fault  json.RawMessage // the error member
	reply  *Error          // for kindInvalid
}

// parse classifies a line. It never fails: what is no message is kindInvalid
// with the answer that JSON-RPC asks for.
func parse(line []byte) message {
	line = bytes.Trim(line, " \t\r\n")
	if len(line) == 0 {
		return message{kind: kindBlank}
	}
	if !utf8.Valid(line) {
		return invalid(nil, CodeParse, "parse error: not UTF-8", true)
	}
	if line[0] != '{' {
		return parseOther(line)
	}
	var m message
	var version, method []byte
	err := rawjson.Scan(line, func(key, value []byte) {
		switch {
		case rawjson.KeyIs(key, "jsonrpc"):
			version = value
		case rawjson.KeyIs(key, "id"):
			m.id = value
		case rawjson.KeyIs(key, "method"):
			method = value
		case rawjson.KeyIs(key, "params"):
			m.params = value
		case rawjson.KeyIs(key, "result"):
			m.result = value
		case rawjson.KeyIs(key, "error"):
			m.fault = value
		}
	})
	if err != nil {
		return invalid(nil, CodeParse, "parse error: not JSON", true)
	}
	return classify(m, version, method)
}

// parseOther answers a line that starts like no object.
func parseOther(line []byte) message {
	switch {
	case !rawjson.Valid(line):
		return invalid(nil, CodeParse, "parse error: not JSON", true)
	case line[0] == '[':
		return invalid(nil, CodeInvalidRequest, "invalid request: batches are not supported", true)
	}
	return invalid(nil, CodeInvalidRequest, "invalid request: not an object", true)
}

// classify tells the kinds of objects apart.
func classify(m message, version, method []byte) message {
	echo := m.id
	if !isID(echo) {
		echo = nil
	}
	if !isString(version) || rawjson.Unquote(version) != "2.0" {
		return invalid(echo, CodeInvalidRequest, `invalid request: "jsonrpc" is not "2.0"`, true)
	}
	answers := m.result != nil || m.fault != nil
	switch {
	case method == nil && answers:
		m.kind = kindResponse
		return m
	case method == nil:
		return invalid(nil, CodeInvalidRequest, "invalid request: neither method nor result nor error", false)
	case method[0] != '"':
		return invalid(echo, CodeInvalidRequest, "invalid request: method is not a string", false)
	case answers:
		return invalid(echo, CodeInvalidRequest, "invalid request: both method and result or error", false)
	case m.id != nil && echo == nil:
		return invalid(nil, CodeInvalidRequest, "invalid request: id is not a string, number or null", false)
	}
	m.method = rawjson.Unquote(method)
	m.kind = kindRequest
	if m.id == nil {
		m.kind = kindNotification
	}
	if m.params == nil || m.params[0] == '{' || m.params[0] == '[' {
		return m
	}
	if m.params[0] == 'n' { // many peers write null where they mean absent
		m.params = nil
		return m
	}
	if m.id == nil {
		return message{kind: kindIgnored}
	}
	return invalid(echo, CodeInvalidParams, "invalid params: not an object or array", false)
}

func invalid(id json.RawMessage, code int64, text string, noise bool) message {
	return message{kind: kindInvalid, noise: noise, id: id, reply: &Error{Code: code, Message: text}}
}

// isID reports whether the JSON value may be an id.
func isID(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case '{', '[', 't', 'f':
		return false
	}
	return true
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// idKey makes ids comparable: by type and text, a string without regard to how
// it was escaped.
func idKey(raw json.RawMessage) string {
	if isString(raw) {
		return `"` + rawjson.Unquote(raw)
	}
	return string(raw)
}
