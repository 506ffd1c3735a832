//go:build unix

package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"unicode/utf8"
)

// formatVersion is the version of the events that is understood: fields and types are
// added within one, a change of meaning is another.
const formatVersion = 1

var (
	errNoEvent      = errors.New("no event")
	errOtherVersion = errors.New("an event of an unknown version")
)

// event is one line of a run. Fields hold the members as they stand.
type event struct {
	kind   string
	fields map[string]json.RawMessage
}

// parseEvent reads a line. errNoEvent: it is something else. Bytes that are no UTF-8, as
// half a character at a cut, become U+FFFD.
func parseEvent(line []byte) (event, error) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return event{}, errNoEvent
	}
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	var e event
	if err := json.Unmarshal(line, &e.fields); err != nil {
		return event{}, errNoEvent
	}
	if e.kind = e.text("type"); e.kind == "" {
		return event{}, errNoEvent
	}
	var version float64
	raw, ok := e.fields["version"]
	if !ok || json.Unmarshal(raw, &version) != nil {
		return event{}, errNoEvent
	}
	if version != formatVersion {
		return event{}, errOtherVersion
	}
	return e, nil
}

// text is the first of the named members that is a string, else empty.
func (e event) text(names ...string) string {
	for _, name := range names {
		var s string
		if raw := e.fields[name]; len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
			return s
		}
	}
	return ""
}

// flag is a boolean member.
func (e event) flag(name string) (value, ok bool) {
	raw := e.fields[name]
	return string(raw) == "true", string(raw) == "true" || string(raw) == "false"
}

// without is the event as an object, less what only orders it and the named members.
func (e event) without(names ...string) map[string]json.RawMessage {
	out := maps.Clone(e.fields)
	for _, name := range append(names, "version", "seq") {
		delete(out, name)
	}
	return out
}

// maxInnerBytes is the longest inner id: it becomes an argument and a record's field.
const maxInnerBytes = 512

// inner is the id of the raider's own session, where the event names it: "session" as a
// string, or as an object with an id.
func (e event) inner() string {
	id := e.text("session")
	if id == "" {
		var session struct {
			ID string `json:"id"`
		}
		if raw := e.fields["session"]; len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &session) == nil {
			id = session.ID
		}
	}
	for _, r := range id {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return ""
		}
	}
	if len(id) > maxInnerBytes {
		return ""
	}
	return id
}
