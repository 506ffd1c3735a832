//go:build unix

package stream

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxOutputBytes is how much of a call's output its updates show: each replaces the one
	// before it, so the whole output in each would grow with its square.
	maxOutputBytes = 16 << 10
	maxTitleBytes  = 200
)

// toolCalls are the tool calls of a run.
type toolCalls struct {
	prefix string
	open   map[string]*toolCall // by the raider's own id
	order  []string             // of what is open
	count  int
}

type toolCall struct {
	id     string // as the client sees it
	output string // the end of it
}

// toolUpdate is a tool_call or a tool_call_update.
type toolUpdate struct {
	SessionUpdate string                     `json:"sessionUpdate"`
	ToolCallID    string                     `json:"toolCallId"`
	Title         string                     `json:"title,omitempty"`
	Kind          string                     `json:"kind,omitempty"`
	Status        string                     `json:"status,omitempty"`
	Content       []toolContent              `json:"content,omitempty"`
	RawInput      json.RawMessage            `json:"rawInput,omitempty"`
	RawOutput     map[string]json.RawMessage `json:"rawOutput,omitempty"`
	Meta          *meta                      `json:"_meta,omitempty"`
}

type toolContent struct {
	Type    string    `json:"type"`
	Content textBlock `json:"content"`
}

// toolOutput is the piece of output that an update brings, in its _meta.
type toolOutput struct {
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

func newToolCalls(prefix string) toolCalls {
	return toolCalls{prefix: prefix, open: map[string]*toolCall{}}
}

// clientID is the id of a tool call as the client sees it.
func (c *toolCalls) clientID(call string) string { return c.prefix + "/" + call }

// begin is tool.call. One without an id gets one, which what follows without an id means.
func (c *toolCalls) begin(e event) []toolUpdate {
	c.count++
	call := callID(e)
	if call == "" {
		call = "#" + strconv.Itoa(c.count)
	}
	name := e.text("name", "tool")
	u := toolUpdate{
		SessionUpdate: "tool_call", ToolCallID: c.add(call), Title: toolTitle(e.text("title"), name, e.fields["arguments"]),
		Kind: toolKind(e.text("kind"), name), Status: "in_progress", RawInput: e.fields["arguments"],
	}
	if e.text("status") == "pending" {
		u.Status = "pending"
	}
	return []toolUpdate{u}
}

func (c *toolCalls) add(call string) string {
	if c.open[call] == nil {
		c.order = append(c.order, call)
	}
	c.open[call] = &toolCall{id: c.clientID(call)}
	return c.open[call].id
}

// find gives the open call that an event is about, the latest one if it doesn't say, and
// opens one that was never begun.
func (c *toolCalls) find(e event) (call string, updates []toolUpdate) {
	call = callID(e)
	if call == "" && len(c.order) > 0 {
		call = c.order[len(c.order)-1]
	}
	if c.open[call] != nil {
		return call, nil
	}
	updates = c.begin(e)
	return c.order[len(c.order)-1], updates
}

// output is tool.output.
func (c *toolCalls) output(e event) []toolUpdate {
	call, updates := c.find(e)
	t := c.open[call]
	piece := toolOutput{Stream: e.text("stream"), Text: e.text("content", "text", "data")}
	t.output = lastBytes(t.output+lastBytes(piece.Text, maxOutputBytes), maxOutputBytes)
	return append(updates, toolUpdate{
		SessionUpdate: "tool_call_update", ToolCallID: t.id, Status: "in_progress", Content: textContent(t.output),
		Meta: &meta{Ours: map[string]toolOutput{"output": piece}},
	})
}

// result is tool.result. Without a text the output stays what is seen.
func (c *toolCalls) result(e event) []toolUpdate {
	call, updates := c.find(e)
	u := toolUpdate{
		SessionUpdate: "tool_call_update", ToolCallID: c.open[call].id, Status: "completed",
		Content: textContent(e.text("content", "text")), RawOutput: e.without("type", "time", "call", "name"),
	}
	ok, said := e.flag("ok")
	switch status := e.text("status"); {
	case said && !ok, status == "failed", status == "error", status == "cancelled":
		u.Status = "failed"
	}
	c.close(call)
	return append(updates, u)
}

// abandon ends the calls that got no result.
func (c *toolCalls) abandon() []toolUpdate {
	var updates []toolUpdate
	for _, call := range c.order {
		updates = append(updates, toolUpdate{SessionUpdate: "tool_call_update", ToolCallID: c.open[call].id, Status: "failed"})
	}
	c.order = nil
	clear(c.open)
	return updates
}

func (c *toolCalls) close(call string) {
	delete(c.open, call)
	c.order = slices.DeleteFunc(c.order, func(s string) bool { return s == call })
}

// callID is the raider's id of a tool call, a string or a number.
func callID(e event) string {
	if id := e.text("call", "id"); id != "" {
		return id
	}
	var n json.Number
	if raw := e.fields["call"]; len(raw) > 0 && raw[0] != '"' && json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

func textContent(text string) []toolContent {
	if text == "" {
		return nil
	}
	return []toolContent{{Type: "content", Content: textBlock{Type: "text", Text: text}}}
}

// toolKind is the kind as the raider says it, else what the hall's tools are.
func toolKind(kind, name string) string {
	switch kind {
	case "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other":
		return kind
	}
	switch name {
	case "bash", "sh", "shell", "perl_eval", "perl_check", "perl_cpanm":
		return "execute"
	case "read_file", "list_files":
		return "read"
	case "write_file", "edit_file":
		return "edit"
	case "web_search":
		return "search"
	case "web_fetch":
		return "fetch"
	}
	return "other"
}

// toolTitle is the title as the raider says it, else the tool and what it is called for.
func toolTitle(title, name string, arguments json.RawMessage) string {
	if title == "" {
		var a struct {
			Command string `json:"command"`
			Path    string `json:"path"`
			URL     string `json:"url"`
			Query   string `json:"query"`
		}
		if json.Unmarshal(arguments, &a) == nil && a.Command == "" {
			title = strings.TrimSpace(name + " " + a.Path + a.URL + a.Query)
		} else {
			title = a.Command
		}
	}
	if title == "" {
		title = name
	}
	if title == "" {
		title = "tool"
	}
	title, _, _ = strings.Cut(title, "\n")
	if len(title) > maxTitleBytes {
		title = strings.ToValidUTF8(title[:maxTitleBytes], "") + "…"
	}
	return title
}

// lastBytes is the end of a text, at most n bytes, cut between characters.
func lastBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	for i := range min(len(text), utf8.UTFMax) {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}
