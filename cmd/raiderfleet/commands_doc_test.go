package main

import (
	"encoding/json"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raiderfleet/internal/admin"
	"raiderfleet/subjects"
)

// Every command has its part of docs/commands.md, with an example and all its own flags.
func TestCommandsAreDocumented(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for i, part := range strings.Split(string(body), "\n## ") {
		head, text, _ := strings.Cut(part, "\n")
		if i > 0 {
			parts[strings.Trim(head, "`")] = text
		}
	}
	var check func(c *cobra.Command, path string)
	check = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			name := strings.TrimSpace(path + " " + sub.Name())
			if sub.HasSubCommands() {
				check(sub, name)
				continue
			}
			text, ok := parts[name]
			if !ok {
				t.Errorf("docs/commands.md has no part on `%s`", name)
				continue
			}
			if !strings.Contains(text, "```sh\n") {
				t.Errorf("docs/commands.md: `%s` has no example", name)
			}
			sub.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				// Those of the configuration's keys are in docs/config.md.
				if f.Hidden || f.Name == "help" || f.Annotations[keyAnnotation] != nil {
					return
				}
				if !strings.Contains(text, "`--"+f.Name) {
					t.Errorf("docs/commands.md: `%s` does not mention --%s", name, f.Name)
				}
			})
		}
	}
	check((&app{stdout: io.Discard, stderr: io.Discard}).root(), "")
}

// The field names of each JSON answer stand in docs/commands.md.
func TestAnswersAreDocumented(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	for _, zero := range []any{
		admin.Raider{}, admin.Session{}, admin.Reset{}, admin.Ask{}, admin.AskOption{}, admin.Answered{}, admin.LogLine{},
		admin.LiveEvent{}, admin.Ended{}, admin.Waiting{}, admin.Cancelled{}, subjects.LaneStatus{}, subjects.RunError{}, spawned{},
	} {
		body := reflect.TypeOf(zero)
		for f := range body.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, `"`+name+`"`) {
				t.Errorf("docs/commands.md does not mention %q of %s", name, body)
			}
		}
	}
	for _, block := range blocks(t, "../../docs/commands.md", "json") {
		for line := range strings.Lines(block) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
	}
}
