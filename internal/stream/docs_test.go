//go:build unix

package stream

import (
	"os"
	"strings"
	"testing"
)

// What the documentation shows is what is understood.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/stream-raiders.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../examples/shell-raider/raider.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```sh\n"+string(script)+"```\n") {
		t.Error("the shell raider is not the one of the example")
	}
	var events, kinds []string
	questions := 0
	for line := range strings.Lines(string(text)) {
		if e, err := parseEvent([]byte(line)); err == nil {
			events, kinds = append(events, line), append(kinds, e.kind)
			continue
		}
		if strings.HasPrefix(line, `{"id":1,"tool"`) {
			if _, problem := parseQuestion([]byte(line)); problem != "" {
				t.Error(problem)
			}
			questions++
		}
	}
	for _, kind := range []string{
		"run.started", "run.state", "message", "thinking", "tool.call", "tool.output", "tool.result",
		"plan", "goal", "todo", "warning", "run.finished",
	} {
		if strings.Count(strings.Join(kinds, " ")+" ", kind+" ") != 1 {
			t.Errorf("%s has no example", kind)
		}
	}
	updates, inner := translate(t, strings.Join(events, ""))
	if len(updates) != 11 || len(inner) != 2 || questions != 1 {
		t.Errorf("%d updates, %d inner ids, %d questions", len(updates), len(inner), questions)
	}
}
