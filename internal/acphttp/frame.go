package acphttp

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"raiderfleet/internal/rawjson"
)

// line makes one line of a message. A message that is no JSON stays so: a control character
// stands for its line ends, which JSON allows nowhere.
func line(message []byte) []byte {
	out := make([]byte, 0, len(message)+1)
	blank := byte(' ')
	if bytes.ContainsAny(message, "\r\n") && !json.Valid(message) {
		blank = 1
	}
	for _, b := range message {
		if b == '\n' || b == '\r' {
			b = blank
		}
		out = append(out, b)
	}
	return append(out, '\n')
}

// message is what a transport has to know of one.
type message struct {
	id      string // the raw text; empty: none
	method  string
	session string // of the params
	request string // requestId of the params, raw
}

func look(raw []byte) message {
	var m message
	id, _ := rawjson.Get(raw, "id")
	m.id = string(id)
	m.method = text(raw, "method")
	params, _ := rawjson.Get(raw, "params")
	m.session = text(params, "sessionId")
	if request, ok := rawjson.Get(params, "requestId"); ok {
		m.request = string(request)
	}
	return m
}

// text is a string in an object, empty when there is none.
func text(obj json.RawMessage, key string) (s string) {
	raw, ok := rawjson.Get(obj, key)
	if !ok || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// isJSON says whether a body is JSON in UTF-8, as ACP has it.
func isJSON(b []byte) bool { return utf8.Valid(b) && json.Valid(b) }

// lines gives the whole lines of what is written to f, one after the other.
type lines struct {
	rest []byte
	f    func(line []byte) error
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			l.rest = append(l.rest, b...)
			return n, nil
		}
		whole := b[:i]
		if len(l.rest) > 0 {
			whole = append(l.rest, whole...)
			l.rest = nil
		}
		if err := l.f(whole); err != nil {
			return 0, err
		}
		b = b[i+1:]
	}
}
