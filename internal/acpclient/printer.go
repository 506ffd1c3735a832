package acpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Printer shows a turn. Its methods are safe for many goroutines. It remembers the first
// error of writing and writes nothing to that writer any more.
type Printer struct {
	// Out gets the agent's text as it comes; with JSON a line for each update and the
	// result.
	Out io.Writer
	// Notes gets tool calls, thoughts and plans in short, for a person. nil: nobody.
	Notes io.Writer
	JSON  bool
	// Users shows what users say too, each line after a '> '.
	Users bool

	mu     sync.Mutex // guards the rest
	shown  bool       // something of the turn has come
	prompt string     // its id, if it was told
	inLine bool       // the text so far does not end with a newline
	err    error
}

// update is what the printer reads of the params of session/update.
type update struct {
	Update struct {
		Kind    string          `json:"sessionUpdate"`
		Content json.RawMessage `json:"content"` // an object, or a list in tool calls
		Title   string          `json:"title"`
		Status  string          `json:"status"`
		Tool    string          `json:"kind"`
		Entries []struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		} `json:"entries"`
		Meta struct {
			Queue *struct {
				Prompt string `json:"prompt"`
				Place  int    `json:"place"`
				Of     int    `json:"of"`
			} `json:"raiderfleet/queue"`
			Turn *struct {
				Outcome string `json:"outcome"`
				Error   string `json:"error"`
			} `json:"raiderfleet/turn"`
			Note *struct {
				Text string `json:"text"`
			} `json:"raiderfleet/note"`
		} `json:"_meta"`
	} `json:"update"`
}

// Update shows the params of a session/update.
func (p *Printer) Update(params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = true
	var u update
	unknown := json.Unmarshal(params, &u) != nil
	if q := u.Update.Meta.Queue; q != nil {
		p.prompt = q.Prompt
	}
	if p.JSON {
		p.write(append(slices.Clip(params), '\n'))
		return
	}
	if unknown {
		return // of a kind that is written in another way: nothing that we could show
	}
	switch u.Update.Kind {
	case "agent_message_chunk":
		if text := textOf(u.Update.Content); text != "" {
			p.write([]byte(text))
			p.inLine = !strings.HasSuffix(text, "\n")
		}
	case "user_message_chunk":
		if text := textOf(u.Update.Content); p.Users && text != "" {
			p.user(text)
		}
	case "agent_thought_chunk":
		p.breakLine() // what the agent says next is another message
		p.note("thinks: %s", textOf(u.Update.Content))
	case "tool_call":
		p.breakLine() // as above
		p.note("tool: %s", u.Update.Title)
	case "tool_call_update":
		if u.Update.Status == "completed" || u.Update.Status == "failed" {
			p.note("tool %s %s", u.Update.Status, u.Update.Title)
		}
	case "plan":
		for _, e := range u.Update.Entries {
			p.note("plan: [%s] %s", e.Status, e.Content)
		}
	case "session_info_update":
		if q := u.Update.Meta.Queue; q != nil {
			p.note("waits at place %d of %d", q.Place, q.Of)
		}
		if t := u.Update.Meta.Turn; t != nil && p.Users {
			p.ended(t.Outcome, t.Error)
		}
		if n := u.Update.Meta.Note; n != nil && n.Text != "" {
			p.note("note: %s", n.Text)
		}
	}
}

// Note tells the person who is there something about the turn.
func (p *Printer) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("%s", text)
}

// Quiet is Note, unless something of the turn has come.
func (p *Printer) Quiet(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shown {
		p.note("%s", text)
	}
}

// Asking is ask, whose question is something of the turn too: a Quiet would stand behind it.
func (p *Printer) Asking(ask func(context.Context, PermissionRequest) string) func(context.Context, PermissionRequest) string {
	return func(ctx context.Context, r PermissionRequest) string {
		p.mu.Lock()
		p.shown = true
		p.mu.Unlock()
		return ask(ctx, r)
	}
}

// Prompt is the id of the turn's prompt in the fleet, if the front door has told it: it
// tells it to those that wait.
func (p *Printer) Prompt() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prompt
}

// End ends the last line, or with JSON writes the result. It returns the first error of
// writing to Out.
func (p *Printer) End(result json.RawMessage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = true
	switch {
	case p.JSON && result != nil:
		p.write(append(slices.Clip(result), '\n'))
	case !p.JSON:
		p.breakLine()
	}
	return p.err
}

// breakLine ends a line that is not ended.
func (p *Printer) breakLine() {
	if p.inLine {
		p.write([]byte("\n"))
		p.inLine = false
	}
}

func (p *Printer) write(b []byte) {
	if p.err == nil {
		_, p.err = p.Out.Write(b)
	}
}

func (p *Printer) note(format string, args ...any) {
	if p.Notes == nil {
		return
	}
	p.breakLine()
	line := Plain(fmt.Sprintf(format, args...))
	_, _ = io.WriteString(p.Notes, line+"\n") // notes are for a person who is there
}

// ended shows how a turn of somebody else ended, unless as it should.
func (p *Printer) ended(outcome, text string) {
	if outcome == "completed" {
		p.breakLine()
		return
	}
	p.breakLine()
	if text != "" {
		outcome += ": " + Plain(text)
	}
	p.write([]byte("! " + outcome + "\n"))
}

// user shows what a user said, apart from what the agent does.
func (p *Printer) user(text string) {
	p.breakLine()
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString("> " + line + "\n")
	}
	p.write([]byte(b.String()))
}

func textOf(content json.RawMessage) string {
	var c struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &c) != nil || c.Type != "text" {
		return ""
	}
	return c.Text
}

// Plain is a line of an agent's text that can't change the terminal, cut to a line's size.
func Plain(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)), " ")
	const longest = 200
	if r := []rune(s); len(r) > longest {
		s = string(r[:longest]) + "…"
	}
	return s
}
