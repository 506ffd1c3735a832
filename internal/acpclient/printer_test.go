package acpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestPrinter(t *testing.T) {
	t.Parallel()
	chunk := func(kind, text string) string {
		body, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return `{"sessionId":"s","update":{"sessionUpdate":"` + kind + `","content":{"type":"text","text":` + string(body) + `}}}`
	}
	for _, tt := range []struct {
		name, out, notes string
		updates          []string
	}{
		{"nothing", "", "", nil},
		{"a newline at the end", "hello fleet\n", "", []string{chunk("agent_message_chunk", "hello "), chunk("agent_message_chunk", "fleet")}},
		{"only one newline", "hello\n", "", []string{chunk("agent_message_chunk", "hello\n")}},
		{"thoughts are notes", "a\n", "thinks: why not\n", []string{chunk("agent_thought_chunk", "why\nnot"), chunk("agent_message_chunk", "a")}},
		{"no control characters in notes", "", "thinks: [2J gone\n", []string{chunk("agent_thought_chunk", "\x1b[2J gone")}},
		{"the user's own text is not shown", "", "", []string{chunk("user_message_chunk", "me")}},
		{"tools", "", "tool: Read a file\ntool completed\n", []string{
			`{"update":{"sessionUpdate":"tool_call","toolCallId":"1","title":"Read a file","content":[{"type":"content"}]}}`,
			`{"update":{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"in_progress"}}`,
			`{"update":{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"completed"}}`,
		}},
		{"plan", "", "plan: [pending] go\n", []string{`{"update":{"sessionUpdate":"plan","entries":[{"content":"go","status":"pending"}]}}`}},
		{"place", "", "waits at place 2 of 5\n", []string{`{"update":{"sessionUpdate":"session_info_update","_meta":{"raiderfleet/queue":{"place":2,"of":5}}}}`}},
		{"messages are apart", "before\nafter\nat last\n", "tool: x\nthinks: so\n", []string{
			chunk("agent_message_chunk", "bef"), chunk("agent_message_chunk", "ore"), `{"update":{"sessionUpdate":"tool_call","toolCallId":"1","title":"x"}}`,
			chunk("agent_message_chunk", "after"), chunk("agent_thought_chunk", "so"), chunk("agent_message_chunk", "at last"),
		}},
		{"unknown kinds", "", "", []string{`{"update":{"sessionUpdate":"x","content":7,"title":null}}`, `{"update":7}`, `{}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, notes bytes.Buffer
			p := &Printer{Out: &out, Notes: &notes}
			for _, u := range tt.updates {
				p.Update(json.RawMessage(u))
			}
			if err := p.End(nil); err != nil {
				t.Fatal(err)
			}
			// The answer is the same where nobody reads notes.
			var alone bytes.Buffer
			p = &Printer{Out: &alone}
			for _, u := range tt.updates {
				p.Update(json.RawMessage(u))
			}
			if err := p.End(nil); err != nil || alone.String() != tt.out {
				t.Errorf("without notes: %q, %v", alone.String(), err)
			}
			if out.String() != tt.out || notes.String() != tt.notes {
				t.Errorf("got %q and notes %q, want %q and %q", out.String(), notes.String(), tt.out, tt.notes)
			}
		})
	}
}

// The ends of others' turns are shown to who sees others' prompts.
func TestPrinterShowsEnds(t *testing.T) {
	t.Parallel()
	end := func(turn string) json.RawMessage {
		return json.RawMessage(`{"update":{"sessionUpdate":"session_info_update","_meta":{"raiderfleet/turn":` + turn + `}}}`)
	}
	for users, want := range map[bool]string{true: "said\n! failed: no [2Jroom\n! cancelled\n", false: "said\n"} {
		var out bytes.Buffer
		p := &Printer{Out: &out, Users: users}
		p.Update(json.RawMessage(`{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"said"}}}`))
		p.Update(end(`{"outcome":"failed","error":"no\n\u001b[2Jroom"}`))
		p.Update(end(`{"outcome":"cancelled"}`))
		p.Update(end(`{"outcome":"completed"}`))
		if err := p.End(nil); err != nil || out.String() != want {
			t.Errorf("users %v: %q, %v", users, out.String(), err)
		}
	}
}

func TestPrinterJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Printer{Out: &out, JSON: true}
	p.Update(json.RawMessage(`{"n": 1.50}`))
	if err := p.End(json.RawMessage(`{"stopReason":"end_turn"}`)); err != nil {
		t.Fatal(err)
	}
	if want := "{\"n\": 1.50}\n{\"stopReason\":\"end_turn\"}\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestPrinterKeepsItsFirstError(t *testing.T) {
	t.Parallel()
	full := errors.New("no space")
	p := &Printer{Out: failingWriter{full}}
	p.Update(json.RawMessage(`{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}`))
	if err := p.End(nil); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestNotesAreCut(t *testing.T) {
	t.Parallel()
	if got := Plain(strings.Repeat("ö", 1000)); len([]rune(got)) != 201 {
		t.Errorf("a long note has %d runes", len([]rune(got)))
	}
}

// While a question is open nothing is said of what is waited for: it would stand behind it.
func TestAQuestionIsSomethingOfTheTurn(t *testing.T) {
	t.Parallel()
	var notes bytes.Buffer
	p := &Printer{Notes: &notes}
	p.Quiet("before")
	got := p.Asking(func(context.Context, PermissionRequest) string {
		p.Quiet("behind the question")
		return "yes"
	})(t.Context(), PermissionRequest{})
	if got != "yes" || notes.String() != "before\n" {
		t.Errorf("%q, %q", got, notes.String())
	}
}
