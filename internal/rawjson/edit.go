package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Set returns obj with the member key set to value: in place where the key is
// there (every one of several), else added as the last member. obj itself is
// left alone. The error is ErrNotObject or ErrBadValue.
func Set(obj json.RawMessage, key string, value json.RawMessage) (json.RawMessage, error) {
	if !Valid(value) {
		return nil, ErrBadValue
	}
	out := make(json.RawMessage, 0, len(obj)+len(key)+len(value)+8)
	copied, members, found := 0, 0, false
	ok := each(obj, func(s span) {
		members++
		if !KeyIs(obj[s.keyFrom:s.keyTo], key) {
			return
		}
		found = true
		out = append(out, obj[copied:s.from]...)
		out = append(out, value...)
		copied = s.to
	})
	if !ok {
		return nil, ErrNotObject
	}
	if found {
		return append(out, obj[copied:]...), nil
	}
	quoted, err := quote(key)
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(obj, '}')
	out = append(out, obj[:end]...)
	if members > 0 {
		out = append(out, ',')
	}
	out = append(out, quoted...)
	out = append(out, ':')
	out = append(out, value...)
	return append(out, obj[end:]...), nil
}

// Delete returns obj without the member key; every one of several goes. An
// obj without it comes back as it is. White space beside removed members may
// go with them.
func Delete(obj json.RawMessage, key string) (json.RawMessage, error) {
	var kept []span
	first, last, removed := -1, 0, false
	ok := each(obj, func(s span) {
		if first < 0 {
			first = s.keyFrom
		}
		last = s.to
		if KeyIs(obj[s.keyFrom:s.keyTo], key) {
			removed = true
			return
		}
		kept = append(kept, s)
	})
	if !ok {
		return nil, ErrNotObject
	}
	if !removed {
		return obj, nil
	}
	out := make(json.RawMessage, 0, len(obj))
	out = append(out, obj[:first]...)
	for i, s := range kept {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, obj[s.keyFrom:s.to]...)
	}
	return append(out, obj[last:]...), nil
}

// quote writes key as a JSON string without the HTML escapes that
// json.Marshal adds.
func quote(key string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(key); err != nil {
		return nil, fmt.Errorf("rawjson: quoting a key: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
