package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rawjson"
	"raiderfleet/subjects"
)

// conversation collects what an agent is told of a conversation that it can't load: the
// newest of it, in at most budget bytes.
type conversation struct {
	budget int
	parts  []spoken
	size   int
	cut    bool // something older was left out
}

// spoken is what one side said in one go.
type spoken struct{ who, text string }

// add appends what who said and lets go of what is too old for the budget.
func (c *conversation) add(who, text string) {
	if text == "" {
		return
	}
	if n := len(c.parts); n > 0 && c.parts[n-1].who == who {
		c.parts[n-1].text += text
	} else {
		c.parts = append(c.parts, spoken{who, text})
	}
	c.size += len(text)
	for c.size > c.budget {
		c.cut = true
		first := &c.parts[0]
		over := c.size - c.budget
		if over >= len(first.text) {
			c.size -= len(first.text)
			c.parts = c.parts[1:]
			continue
		}
		for over < len(first.text) && !utf8.RuneStart(first.text[over]) {
			over++
		}
		c.size -= over
		// Copied, or what was cut would be kept with it.
		first.text = strings.Clone(first.text[over:])
	}
}

// update adds the params of a session/update. Thoughts are the agent's own, and most of
// what else there is shows in what it said.
func (c *conversation) update(params json.RawMessage) {
	var m struct {
		Update struct {
			Kind    string          `json:"sessionUpdate"`
			Content json.RawMessage `json:"content"`
			Title   string          `json:"title"`
			Status  string          `json:"status"`
		} `json:"update"`
	}
	if json.Unmarshal(params, &m) != nil {
		return // of a kind that nobody knows
	}
	u := m.Update
	switch u.Kind {
	case "user_message_chunk":
		c.add("User", blockText(u.Content))
	case "agent_message_chunk":
		c.add("Agent", blockText(u.Content))
	case "tool_call", "tool_call_update":
		if u.Title == "" {
			return
		}
		text := "- " + u.Title
		if u.Status != "" {
			text += " (" + u.Status + ")"
		}
		c.add("Tools that the agent called", text+"\n")
	}
}

// blockText is what a content block says in words.
func blockText(block json.RawMessage) string {
	var b struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		URI      string `json:"uri"`
		Resource struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
		} `json:"resource"`
	}
	if json.Unmarshal(block, &b) != nil {
		return ""
	}
	switch b.Type {
	case "text":
		return b.Text
	case "resource_link":
		return "[" + b.URI + "]"
	case "resource":
		return "\n[" + b.Resource.URI + "]\n" + b.Resource.Text + "\n"
	case "":
		return ""
	}
	return "[" + b.Type + "]"
}

// text is the conversation in Markdown; empty when there is none.
func (c *conversation) text() string {
	if len(c.parts) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("# The conversation so far\n")
	if c.cut {
		b.WriteString("\n(Its beginning is left out.)\n")
	}
	for _, p := range c.parts {
		b.WriteString("\n## " + p.who + "\n\n" + strings.TrimSpace(p.text) + "\n")
	}
	return b.String()
}

// soFar reads the session's conversation from its transcript.
func (r *run) soFar(budget int) (*conversation, error) {
	l := r.l
	c := &conversation{budget: budget}
	subject := l.w.fleet.Transcript(r.header.Session)
	for from := uint64(0); ; {
		var m bus.Message
		err := l.do(func(ctx context.Context) error {
			var err error
			m, err = l.w.b.Next(ctx, l.w.fleet.TranscriptStream(), subject, from)
			return err
		})
		if errors.Is(err, bus.ErrNotFound) {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		from = m.Seq + 1
		var entry subjects.TranscriptEntry
		body, err := l.w.b.Body(r.ctx, m.Header.Get(subjects.HeaderPayload), m.Data)
		switch {
		case r.ctx.Err() != nil:
			return nil, errRunOver
		case err != nil || json.Unmarshal(body, &entry) != nil:
			c.cut = true
			continue
		}
		for _, name := range entry.Parts {
			var part []json.RawMessage
			body, err := l.w.b.GetPayload(r.ctx, name)
			switch {
			case r.ctx.Err() != nil:
				return nil, errRunOver
			case err != nil || json.Unmarshal(body, &part) != nil:
				c.cut = true
			}
			for _, u := range part {
				c.update(u)
			}
		}
		for _, u := range entry.Updates {
			c.update(u)
		}
		if o := entry.Outcome; o != nil && o.Error != nil {
			c.add("How the turn ended", o.Error.Message+"\n")
		}
	}
}

// carry gives the agent, with the prompt in body, the conversation that it could not load.
// The user's own blocks stay as they are, behind it.
func (p *process) carry(body json.RawMessage) (json.RawMessage, error) {
	if p.carried == "" {
		return body, nil
	}
	block := map[string]any{"type": "text", "text": p.carried}
	if p.embeds {
		block = map[string]any{"type": "resource", "resource": map[string]any{
			"uri": "raiderfleet:///" + string(p.session) + "/conversation.md", "mimeType": "text/markdown", "text": p.carried,
		}}
	}
	first, err := json.Marshal(block)
	if err != nil {
		return nil, err
	}
	own, _ := rawjson.Get(body, "prompt")
	var blocks []json.RawMessage
	if len(own) > 0 {
		if err := json.Unmarshal(own, &blocks); err != nil {
			return nil, err
		}
	}
	with, err := json.Marshal(append([]json.RawMessage{first}, blocks...))
	if err != nil {
		return nil, err
	}
	return rawjson.Set(body, "prompt", with)
}
