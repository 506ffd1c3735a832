package demo_test

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"raiderfleet/internal/demo"
)

// oneShot runs a prompt as a stream raider and gives the exit code and the events.
func oneShot(t *testing.T, state string, args ...string) (int, []map[string]any) {
	t.Helper()
	var out bytes.Buffer
	code := demo.Main(t.Context(), append([]string{"--state", state, "--stream-json"}, args...), strings.NewReader(""), &out, io.Discard)
	var events []map[string]any
	for line := range strings.Lines(out.String()) {
		var e map[string]any
		if json.Unmarshal([]byte(line), &e) == nil && e["version"] == 1.0 {
			events = append(events, e)
			if e["seq"] != float64(len(events)) {
				t.Errorf("event %d has seq %v", len(events), e["seq"])
			}
		}
	}
	return code, events
}

func TestOneShot(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	for _, tc := range []struct {
		prompt, status, text string
		code                 int
		kinds                []string // beside the run's own
	}{
		{"echo -n x", "completed", "-n x", 0, []string{"message"}},
		{"tool", "completed", "counted to three", 0, []string{"tool.call", "tool.output", "tool.result", "message"}},
		{"think", "completed", "thought about it", 0, []string{"thinking", "message"}},
		{"ask", "completed", "no answer: there is nobody to ask", 0, []string{"message"}},
		{"fail out of luck", "failed", "out of luck", 1, nil},
		{"cwd", "completed", "/", 0, []string{"message"}},
	} {
		code, events := oneShot(t, state, "--engine", "e", "--pack", "p", "--pack", "q", "--root", "/", "--", tc.prompt)
		var kinds []string
		for _, e := range events {
			kind, _ := e["type"].(string)
			kinds = append(kinds, kind)
		}
		want := slices.Concat([]string{"run.started", "run.state"}, tc.kinds, []string{"run.state", "run.finished"})
		if code != tc.code || !slices.Equal(kinds, want) {
			t.Errorf("%s: exit code %d, %q", tc.prompt, code, kinds)
			continue
		}
		last := events[len(events)-1]
		text := last["response"]
		if tc.status == "failed" {
			text = last["error"]
		}
		if last["status"] != tc.status || text != tc.text {
			t.Errorf("%s: %v", tc.prompt, last)
		}
	}
}

func TestOneShotGoesOnWithASession(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	_, events := oneShot(t, state, "--", "echo one")
	session, _ := events[0]["session"].(map[string]any)
	id, _ := session["id"].(string)
	if id == "" {
		t.Fatalf("no session: %v", events[0])
	}
	if _, events = oneShot(t, state, "--session", id, "--", "history"); events[len(events)-1]["response"] != "echo one" {
		t.Fatalf("history: %v", events)
	}
	if code, events := oneShot(t, state, "--session", "demo-nowhere", "--", "history"); code != 2 || len(events) != 0 {
		t.Fatalf("unknown session: exit code %d, %v", code, events)
	}
}
