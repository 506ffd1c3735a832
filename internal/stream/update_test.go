//go:build unix

package stream

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// translate gives the updates of a run's events, one line each, checked against the schema.
func translate(t *testing.T, lines string) (updates []string, inner []string) {
	t.Helper()
	tr := newTranslator("R", func(update any) error {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(update); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSpace(b.String())
		valid(t, "session/update", json.RawMessage(`{"sessionId":"s","update":`+text+`}`))
		updates = append(updates, text)
		return nil
	}, func(id string) { inner = append(inner, id) })
	for line := range strings.Lines(lines) {
		e, err := parseEvent([]byte(line))
		if err != nil {
			continue
		}
		if err := tr.handle(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.end(); err != nil {
		t.Fatal(err)
	}
	return updates, inner
}

const (
	said1   = `{"sessionUpdate":"agent_message_chunk","messageId":"R/m1","content":{"type":"text","text":"`
	said2   = `{"sessionUpdate":"agent_message_chunk","messageId":"R/m2","content":{"type":"text","text":"`
	info    = `{"sessionUpdate":"session_info_update","_meta":{"raiderfleet":{"event":`
	callOpt = `"toolCallId":"R/c1"`
)

func TestEventsBecomeUpdates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"message", `{"version":1,"type":"message","seq":1,"time":1.5,"role":"assistant","content":"a<b>\n"}`, said1 + `a<b>\n"}}`},
		{"message without a role", `{"version":1,"type":"message","content":"x"}`, said1 + `x"}}`},
		{"the prompt said again", `{"version":1,"type":"message","role":"user","content":"x"}`, ``},
		{"empty message", `{"version":1,"type":"message","content":""}`, ``},
		{"content of another type", `{"version":1,"type":"message","content":{"a":1}}`, ``},
		{"thinking", `{"version":1,"type":"thinking","content":"hm"}`, `{"sessionUpdate":"agent_thought_chunk","messageId":"R/m1","content":{"type":"text","text":"hm"}}`},
		{"unknown type", `{"version":1,"type":"text.delta","content":"x"}`, ``},
		{"another version", `{"version":2,"type":"message","content":"x"}`, ``},
		{"no version", `{"type":"message","content":"x"}`, ``},
		{"version as text", `{"version":"1","type":"message","content":"x"}`, ``},
		{"type no text", `{"version":1,"type":7}`, ``},
		{"unknown fields", `{"version":1,"type":"message","content":"x","colour":["red"],"role":null}`, said1 + `x"}}`},
		{"not UTF-8", "{\"version\":1,\"type\":\"message\",\"content\":\"caf\xc3\"}", said1 + "caf\uFFFD" + `"}}`},
		{"lone surrogate", `{"version":1,"type":"message","content":"\ud83d!"}`, said1 + "\uFFFD!" + `"}}`},
		{"state", `{"version":1,"type":"run.state","seq":2,"time":2,"state":"waiting_task"}`, info + `{"state":"waiting_task","time":2,"type":"run.state"}}}}`},
		{"started", `{"version":1,"type":"run.started","seq":2,"engine":"e","model":"m"}`, info + `{"engine":"e","model":"m","type":"run.started"}}}}`},
		{"goal", `{"version":1,"type":"goal","goal":"win"}`, info + `{"goal":"win","type":"goal"}}}}`},
		{"warning", `{"version":1,"type":"warning","message":"low"}`, info + `{"message":"low","type":"warning"}}}}`},
		{"response that was said", `{"version":1,"type":"message","content":"x\n"}
{"version":1,"type":"run.finished","status":"completed","response":"x"}`, said1 + `x\n"}}`},
		{"response said in pieces", `{"version":1,"type":"message","content":"x "}
{"version":1,"type":"message","content":"y"}
{"version":1,"type":"run.finished","status":"completed","response":"x y"}`, said1 + `x "}}|` + said2 + `y"}}`},
		{"response that nobody said", `{"version":1,"type":"message","content":"x"}
{"version":1,"type":"run.finished","status":"completed","response":"y"}
{"version":1,"type":"message","content":"late"}`, said1 + `x"}}|` + said2 + `y"}}`},
		{"refused", `{"version":1,"type":"run.finished","status":"refused","response":"no"}`, ``},
		{"tool", `{"version":1,"type":"tool.call","call":"c1","name":"bash","arguments":{"command":"ls -l\nrm x","n":1.50}}
{"version":1,"type":"tool.output","call":"c1","stream":"stdout","content":"a\n"}
{"version":1,"type":"tool.output","call":"c1","stream":"stderr","content":"b\n"}
{"version":1,"type":"tool.result","call":"c1","name":"bash","status":"succeeded","ok":true,"size":4,"content":"a\nb\n","truncated":false}`,
			`{"sessionUpdate":"tool_call",` + callOpt + `,"title":"ls -l","kind":"execute","status":"in_progress","rawInput":{"command":"ls -l\nrm x","n":1.50}}|` +
				`{"sessionUpdate":"tool_call_update",` + callOpt + `,"status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"a\n"}}],"_meta":{"raiderfleet":{"output":{"stream":"stdout","text":"a\n"}}}}|` +
				`{"sessionUpdate":"tool_call_update",` + callOpt + `,"status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"a\nb\n"}}],"_meta":{"raiderfleet":{"output":{"stream":"stderr","text":"b\n"}}}}|` +
				`{"sessionUpdate":"tool_call_update",` + callOpt + `,"status":"completed","content":[{"type":"content","content":{"type":"text","text":"a\nb\n"}}],"rawOutput":{"content":"a\nb\n","ok":true,"size":4,"status":"succeeded","truncated":false}}`},
		{"tool that failed", `{"version":1,"type":"tool.call","call":"c1","name":"read_file","arguments":{"path":"/x"}}
{"version":1,"type":"tool.result","call":"c1","status":"cancelled"}`,
			`{"sessionUpdate":"tool_call",` + callOpt + `,"title":"read_file /x","kind":"read","status":"in_progress","rawInput":{"path":"/x"}}|` +
				`{"sessionUpdate":"tool_call_update",` + callOpt + `,"status":"failed","rawOutput":{"status":"cancelled"}}`},
		{"tool without a result", `{"version":1,"type":"tool.call","call":"c1","title":"T","kind":"made_up","status":"pending"}`,
			`{"sessionUpdate":"tool_call",` + callOpt + `,"title":"T","kind":"other","status":"pending"}|` +
				`{"sessionUpdate":"tool_call_update",` + callOpt + `,"status":"failed"}`},
		{"calls without ids", `{"version":1,"type":"tool.call","name":"a"}
{"version":1,"type":"tool.result","ok":true}
{"version":1,"type":"tool.result","ok":false}`,
			`{"sessionUpdate":"tool_call","toolCallId":"R/#1","title":"a","kind":"other","status":"in_progress"}|` +
				`{"sessionUpdate":"tool_call_update","toolCallId":"R/#1","status":"completed","rawOutput":{"ok":true}}|` +
				`{"sessionUpdate":"tool_call","toolCallId":"R/#2","title":"tool","kind":"other","status":"in_progress"}|` +
				`{"sessionUpdate":"tool_call_update","toolCallId":"R/#2","status":"failed","rawOutput":{"ok":false}}`},
		{"plan and todo", `{"version":1,"type":"plan","entries":[{"content":"one","priority":"high","status":"done"},"two",{"no":"text"},7]}
{"version":1,"type":"todo","items":[{"text":"three","status":"in_progress","priority":"urgent"},{"title":"four","done":true}]}
{"version":1,"type":"plan","entries":[]}`,
			`{"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"},{"content":"two","priority":"medium","status":"pending"}]}|` +
				`{"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"},{"content":"two","priority":"medium","status":"pending"},{"content":"three","priority":"medium","status":"in_progress"},{"content":"four","priority":"medium","status":"completed"}]}|` +
				`{"sessionUpdate":"plan","entries":[{"content":"three","priority":"medium","status":"in_progress"},{"content":"four","priority":"medium","status":"completed"}]}`},
		{"plan as text", `{"version":1,"type":"plan","content":"go"}`, `{"sessionUpdate":"plan","entries":[{"content":"go","priority":"medium","status":"pending"}]}`},
		{"garbage", "banner\n[1]\n{\n\x00\n{\"version\":1}\nnull\n\"x\"\n", ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			updates, _ := translate(t, tc.in)
			if got := strings.Join(updates, "|"); got != tc.want {
				t.Fatalf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestInnerSessionIsTold(t *testing.T) {
	t.Parallel()
	_, inner := translate(t, `{"version":1,"type":"run.started","session":"a"}
{"version":1,"type":"run.state","session":{"path":"/x"}}
{"version":1,"type":"run.state","session":"with\u0000nul"}
{"version":1,"type":"run.state","session":"`+strings.Repeat("x", 513)+`"}
{"version":1,"type":"run.finished","status":"failed","session":{"id":"b","path":"/x"}}`)
	if strings.Join(inner, " ") != "a b" {
		t.Fatalf("got %q", inner)
	}
}

func TestToolOutputIsBounded(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("é", 5000)
	var in strings.Builder
	for range 20 {
		in.WriteString(`{"version":1,"type":"tool.output","call":"c","stream":"stdout","content":"` + piece + `"}` + "\n")
	}
	updates, _ := translate(t, in.String())
	if len(updates) != 22 { // the call that was never begun, and its end
		t.Fatalf("%d updates", len(updates))
	}
	for _, u := range updates {
		if len(u) > maxOutputBytes+len(piece)+1000 || strings.Contains(u, "\uFFFD") {
			t.Fatalf("%d bytes", len(u))
		}
	}
}
