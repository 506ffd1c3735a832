package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// maxParts bounds paths and addresses of one call.
const maxParts = 256

// ParseCall reads the toolCall of an ACP permission request, and the question of a stream
// raider, which has `tool` and `input`. What an agent leaves out is empty; a field of
// another type than expected is a doubt, so that no rule allows the call. The error is
// for what is no JSON object.
func ParseCall(toolCall json.RawMessage) (Call, error) {
	fields, twice, err := object(toolCall)
	if err != nil {
		return Call{}, fmt.Errorf("a tool call must be a JSON object: %w", err)
	}
	p := callParser{}
	if twice != "" {
		p.doubt("the key " + twice + " is there twice")
	}
	p.c.Kind = strings.ToLower(p.text(fields, "kind"))
	p.c.Title = p.text(fields, "title")
	p.c.Tool = p.toolName(fields)
	p.locations(fields["locations"])
	p.content(fields["content"])
	input := fields["rawInput"]
	if empty(input) {
		input = fields["input"]
	}
	p.input(input)
	return p.c, nil
}

// object decodes a JSON object and says which key it has twice: readers differ in which
// one counts.
func object(raw json.RawMessage) (fields map[string]json.RawMessage, twice string, err error) {
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, "", err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, "", err
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, "", err
		}
		name := fmt.Sprint(t)
		if seen[name] {
			twice = name
		}
		seen[name] = true
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return nil, "", err
		}
	}
	return fields, twice, nil
}

func empty(raw json.RawMessage) bool {
	s := string(bytes.TrimSpace(raw))
	return s == "" || s == "null"
}

type callParser struct{ c Call }

func (p *callParser) doubt(why string) {
	if p.c.Doubt == "" {
		p.c.Doubt = why
	}
}

// text is a field that must be text; null is like a missing one.
func (p *callParser) text(fields map[string]json.RawMessage, name string) string {
	raw := fields[name]
	if empty(raw) {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		p.doubt(name + " is no text")
	}
	return s
}

// toolName finds the tool where the agent says it: `tool` of a stream raider, or _meta.
func (p *callParser) toolName(fields map[string]json.RawMessage) string {
	for _, name := range []string{"tool", "toolName"} {
		if s := p.text(fields, name); s != "" {
			return s
		}
	}
	meta, _, err := object(fields["_meta"])
	if err != nil {
		return ""
	}
	if inner, _, err := object(meta["claudeCode"]); err == nil {
		meta = inner
	}
	for _, name := range []string{"toolName", "tool_name", "tool"} {
		var s string
		if json.Unmarshal(meta[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// locations takes the files that the agent says the call is about.
func (p *callParser) locations(raw json.RawMessage) {
	if empty(raw) {
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		p.doubt("locations can't be read")
		return
	}
	for _, item := range list {
		// Not a struct: that would take PATH for path.
		fields, twice, err := object(item)
		if err != nil || twice != "" || empty(fields["path"]) {
			p.doubt("a location can't be read")
		}
		if path := p.text(fields, "path"); path != "" {
			p.addPath(path)
		}
	}
}

// content takes the files of diffs: what is shown is what is written.
func (p *callParser) content(raw json.RawMessage) {
	var list []json.RawMessage
	if empty(raw) || json.Unmarshal(raw, &list) != nil {
		return // it may be anything, it is for people
	}
	for _, item := range list {
		fields, twice, err := object(item)
		if err != nil || p.text(fields, "type") != "diff" {
			continue
		}
		if twice != "" {
			p.doubt("a diff has the key " + twice + " twice")
		}
		if path := p.text(fields, "path"); path != "" {
			p.addPath(path)
		}
	}
}

func (p *callParser) addPath(path string) {
	if slices.Contains(p.c.Paths, path) {
		return
	}
	if len(p.c.Paths) >= maxParts {
		p.doubt("there are too many paths")
		return
	}
	p.c.Paths = append(p.c.Paths, path)
}

func (p *callParser) addURL(u string) {
	if len(p.c.URLs) >= maxParts {
		p.doubt("there are too many URLs")
		return
	}
	p.c.URLs = append(p.c.URLs, u)
}
