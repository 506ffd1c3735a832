package main

import (
	"io"
	"strings"
	"testing"
)

// On a terminal: who looks is asked, who talks answers with a line, Ctrl-C cancels what
// runs, and Ctrl-D leaves while something does.
func TestAttachOnTheTerminal(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	s := decode[spawned](t, f.run("spawn", "--json", "ask"))
	look, person := f.startOn("attach", string(s.Session))
	look.says(look.stdout, "Number: ")
	types := func(w io.Writer, text string) {
		t.Helper()
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	types(person, "1\n")
	look.says(look.stdout, "allowed once")
	types(person, "\x03")
	if code := look.wait(); code != 0 {
		t.Errorf("it ended with %d and said\n%s", code, look.stdout)
	}
	talk, person := f.startOn("attach", "-i", string(s.Session))
	talk.says(talk.stdout, "allowed once")
	types(person, "ask\n")
	talk.says(talk.stdout, "Number: ")
	types(person, "3\n")
	talk.says(talk.stdout, "rejected")
	types(person, "sleep 1000\n")
	talk.says(talk.stdout, "1s")
	types(person, "\x03")
	talk.says(talk.stdout, "the agent stopped: cancelled")
	types(person, "sleep 1000\n")
	talk.poll("the second turn", func() bool { return strings.Count(talk.stdout.String(), "1s") > 1 })
	types(person, "\x04")
	if code := talk.wait(); code != 0 {
		t.Errorf("it ended with %d and said\n%s", code, talk.stdout)
	}
	// It goes on: it says how long it has slept, once a second.
	ticks := func() int {
		return strings.Count(f.run("attach", "--no-follow", string(s.Session)).stdout.String(), "s\n")
	}
	before := ticks()
	poll(t, "what is said after that", func() bool { return ticks() > before })
	if p := f.run("cancel", string(s.Session)); p.code != 0 || !strings.Contains(p.stdout.String(), "cancelled") {
		t.Errorf("cancel ended with %d: %s", p.code, p.stderr)
	}
}

// The dev fleet of a machine is one like others.
func TestSpawnInTheDevFleet(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.run("spawn", "--dev", "echo x").want(1, "", "no dev fleet is running")
	h.serve("dev", "--memory")
	s := decode[spawned](t, h.run("spawn", "--json", "echo hello"))
	h.run("wait", string(s.Prompt)).want(0, string(s.Prompt)+" completed\n")
	h.run("attach", "--no-follow", "--dev", string(s.Session)).want(0, "> echo hello\nhello\n")
	h.run("logs", string(s.Prompt)).want(0, "")
}
