// Package rawjson reads and edits the top-level members of a JSON object as
// text. Everything that is not edited stays byte for byte as it was: the text
// of numbers, the order of members, members nobody knows, escapes.
//
// Nesting is unlimited and costs no Go stack. The package checks JSON syntax
// as encoding/json does; it does not check UTF-8. Nothing here blocks, and
// every function may be called by many goroutines at once.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ErrNotObject says that the text is not one valid JSON object.
var ErrNotObject = errors.New("rawjson: not a JSON object")

// ErrBadValue says that the value to set is not one valid JSON value.
var ErrBadValue = errors.New("rawjson: not a JSON value")

// Member is one member of an object. Key is unescaped; Value is the text as it
// stands, without white space around it, and shares memory with the object.
type Member struct {
	Key   string
	Value json.RawMessage
}

// span holds the places of one member: its quoted key and its value.
type span struct{ keyFrom, keyTo, from, to int }

// each calls visit for every top-level member in order and reports whether the
// text is one valid object. Members before a syntax error have been visited.
func each(obj []byte, visit func(s span)) bool {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return false
	}
	i = skipSpace(obj, i+1)
	if i < len(obj) && obj[i] == '}' {
		return skipSpace(obj, i+1) == len(obj)
	}
	for {
		var s span
		s.keyFrom = skipSpace(obj, i)
		if s.keyTo = skipString(obj, s.keyFrom); s.keyTo < 0 {
			return false
		}
		if i = skipSpace(obj, s.keyTo); i >= len(obj) || obj[i] != ':' {
			return false
		}
		s.from = skipSpace(obj, i+1)
		if s.to = skipValue(obj, s.from); s.to < 0 {
			return false
		}
		visit(s)
		if i = skipSpace(obj, s.to); i >= len(obj) {
			return false
		}
		switch obj[i] {
		case ',':
			i++
		case '}':
			return skipSpace(obj, i+1) == len(obj)
		default:
			return false
		}
	}
}

// Valid reports whether data is one JSON value, white space around it allowed.
func Valid(data []byte) bool {
	end := skipValue(data, 0)
	return end >= 0 && skipSpace(data, end) == len(data)
}

// IsObject reports whether data is one valid JSON object.
func IsObject(data []byte) bool { return each(data, func(span) {}) }

// Scan calls visit for every top-level member in order, with the quoted key
// and the value as they stand; both share memory with obj. It allocates
// nothing. ErrNotObject may come after some members have been visited.
func Scan(obj []byte, visit func(quotedKey, value []byte)) error {
	ok := each(obj, func(s span) {
		visit(obj[s.keyFrom:s.keyTo:s.keyTo], obj[s.from:s.to:s.to])
	})
	if !ok {
		return ErrNotObject
	}
	return nil
}

// Unquote returns the string that a quoted JSON string stands for. Text that is
// no JSON string gives "".
func Unquote(quoted []byte) string {
	if len(quoted) < 2 {
		return ""
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return ""
	}
	return s
}

// KeyIs reports whether the quoted key stands for key.
func KeyIs(quotedKey []byte, key string) bool {
	if len(quotedKey) < 2 {
		return false
	}
	if bytes.IndexByte(quotedKey, '\\') < 0 {
		return string(quotedKey[1:len(quotedKey)-1]) == key
	}
	return Unquote(quotedKey) == key
}

// Get returns the value of a member, the last one where a key is there twice.
// It reports false when the member is missing or obj is no valid object.
func Get(obj json.RawMessage, key string) (json.RawMessage, bool) {
	var value json.RawMessage
	err := Scan(obj, func(k, v []byte) {
		if KeyIs(k, key) {
			value = v
		}
	})
	return value, err == nil && value != nil
}

// Members returns all members in order, duplicates included.
func Members(obj json.RawMessage) ([]Member, error) {
	var all []Member
	err := Scan(obj, func(k, v []byte) {
		all = append(all, Member{Key: Unquote(k), Value: v})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
