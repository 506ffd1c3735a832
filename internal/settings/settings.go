// Package settings reads and changes what an agent lets its clients choose, ACP's modes and
// configOptions, as raw JSON: what nobody knows stays as the agent wrote it.
//
// Nothing here blocks, and every function may be called by many goroutines at once.
package settings

import (
	"bytes"
	"encoding/json"

	"raiderfleet/internal/rawjson"
	"raiderfleet/subjects"
)

// Of are the settings in an agent's answer to session/new, load or resume.
func Of(answer json.RawMessage) subjects.Settings {
	var s subjects.Settings
	if modes, ok := rawjson.Get(answer, "modes"); ok && rawjson.IsObject(modes) {
		s.Modes = modes
	}
	s.Options = Options(answer)
	return s
}

// Options is the member configOptions of an object; nil when it has none.
func Options(obj json.RawMessage) json.RawMessage {
	options, ok := rawjson.Get(obj, "configOptions")
	if !ok || options[0] != '[' {
		return nil
	}
	return options
}

// Mode is the id of the mode that is chosen; "" where there are none.
func Mode(s subjects.Settings) string { return text(s.Modes, "currentModeId") }

// HasMode says whether a mode is offered.
func HasMode(s subjects.Settings, id string) bool {
	modes, _ := rawjson.Get(s.Modes, "availableModes")
	for _, m := range elements(modes) {
		if text(m, "id") == id {
			return true
		}
	}
	return false
}

// WithMode is s with another mode chosen.
func WithMode(s subjects.Settings, id string) subjects.Settings {
	quoted, err := json.Marshal(id)
	if err != nil {
		return s
	}
	if modes, err := rawjson.Set(s.Modes, "currentModeId", quoted); err == nil {
		s.Modes = modes
	}
	return s
}

// Option is one of configOptions.
type Option struct {
	// ID is its id, Value the raw currentValue.
	ID    string
	Value json.RawMessage
	raw   json.RawMessage
}

// Each lists the options, in their order.
func Each(s subjects.Settings) []Option {
	var all []Option
	for _, raw := range elements(s.Options) {
		value, _ := rawjson.Get(raw, "currentValue")
		all = append(all, Option{ID: text(raw, "id"), Value: value, raw: raw})
	}
	return all
}

// Find is the option with an id.
func Find(s subjects.Settings, id string) (Option, bool) {
	for _, o := range Each(s) {
		if o.ID == id {
			return o, true
		}
	}
	return Option{}, false
}

// Boolean says whether the option is on or off.
func (o Option) Boolean() bool { return text(o.raw, "type") == "boolean" }

// Offers says whether a value can be chosen. Of a type that nobody knows all can: only the
// agent can tell.
func (o Option) Offers(value json.RawMessage) bool {
	switch text(o.raw, "type") {
	case "boolean":
		return string(value) == "true" || string(value) == "false"
	case "select":
		options, _ := rawjson.Get(o.raw, "options")
		return offered(options, value)
	}
	return true
}

// offered looks through the values of a select, which may stand in groups.
func offered(options, value json.RawMessage) bool {
	for _, x := range elements(options) {
		if v, ok := rawjson.Get(x, "value"); ok && Same(v, value) {
			return true
		}
		if group, ok := rawjson.Get(x, "options"); ok && offered(group, value) {
			return true
		}
	}
	return false
}

// WithOption is s with another value of an option.
func WithOption(s subjects.Settings, id string, value json.RawMessage) subjects.Settings {
	all := elements(s.Options)
	for i, raw := range all {
		if text(raw, "id") != id {
			continue
		}
		if with, err := rawjson.Set(raw, "currentValue", value); err == nil {
			all[i] = with
			s.Options = join(all)
		}
		break
	}
	return s
}

// About is the part of s that a method changes.
func About(s subjects.Settings, method string) subjects.Settings {
	if method == subjects.MethodSetMode {
		return subjects.Settings{Modes: s.Modes}
	}
	return subjects.Settings{Options: s.Options}
}

// Wish is what the params of a wish choose: a mode, else an option and its value.
func Wish(w subjects.Wish) (mode, option string, value json.RawMessage) {
	if w.Method == subjects.MethodSetMode {
		return text(w.Params, "modeId"), "", nil
	}
	value, _ = rawjson.Get(w.Params, "value")
	return "", text(w.Params, "configId"), value
}

// SameWish says whether one wish stands for the other: both choose the mode, or the same
// option.
func SameWish(a, b subjects.Wish) bool {
	_, one, _ := Wish(a)
	_, other, _ := Wish(b)
	return a.Method == b.Method && one == other
}

// With is s as it will be when the wishes above settled have been applied.
func With(s subjects.Settings, wishes []subjects.Wish, settled uint64) subjects.Settings {
	for _, w := range wishes {
		if w.N <= settled {
			continue
		}
		if mode, option, value := Wish(w); w.Method == subjects.MethodSetMode {
			s = WithMode(s, mode)
		} else {
			s = WithOption(s, option, value)
		}
	}
	return s
}

// Same says whether two values are equal: strings by what they stand for, all else by its
// text without white space.
func Same(a, b json.RawMessage) bool {
	if len(a) > 0 && len(b) > 0 && a[0] == '"' && b[0] == '"' {
		return rawjson.Unquote(a) == rawjson.Unquote(b)
	}
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// text is a member that is a string; "" for none.
func text(obj json.RawMessage, key string) string {
	value, _ := rawjson.Get(obj, key)
	return rawjson.Unquote(value)
}

// elements are the elements of an array, nil of all else.
func elements(array json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	if len(array) == 0 || json.Unmarshal(array, &all) != nil {
		return nil
	}
	return all
}

func join(all []json.RawMessage) json.RawMessage {
	out := json.RawMessage{'['}
	for i, x := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, x...)
	}
	return append(out, ']')
}
