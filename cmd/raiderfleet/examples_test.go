package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"raiderfleet/internal/admin"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// exampleDir is one of the directories of examples.
func exampleDir(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestShellRaiderExample(t *testing.T) {
	t.Parallel()
	dir := exampleDir(t, "shell-raider")
	h := newHome(t)
	config := filepath.Join(dir, "fleet.yml")
	if p := h.run("config", "check", "--config", config); p.code != 0 || !strings.Contains(p.stdout.String(), "raiders.sh ") {
		t.Fatalf("config check ended with %d\n%s%s", p.code, p.stdout, p.stderr)
	}
	h.serve("dev", "--config", config)
	for _, tt := range []struct{ answer, prompt, want string }{
		{"--no", "date +allowed", "allowed\n"}, // by a rule, nobody is asked
		{"--yes", "printf '%s' \"a \\\"b\\\"\"", "a \"b\"\n"},
		{"--no", "printf x", "That is not allowed.\n"},
		{"--yes", "rm nothing", "That is not allowed.\n"}, // by a rule
		{"--yes", "date && rm nothing", "That is not allowed.\n"},
	} {
		p := h.run("prompt", "--dev", "--config", config, "--cwd", dir, tt.answer, tt.prompt)
		if p.code != 0 || p.stdout.String() != tt.want {
			t.Errorf("%q, %s: %d, %q, want %q; stderr:\n%s", tt.prompt, tt.answer, p.code, p.stdout, tt.want, p.stderr)
		}
	}
}

// asked waits for the one question that is open.
func (h *home) asked() admin.Ask {
	h.t.Helper()
	var asks []admin.Ask
	natstest.Eventually(h.t, patience, "a question", func() (bool, any) {
		asks = decode[[]admin.Ask](h.t, h.run("asks", "--json"))
		return len(asks) == 1, asks
	})
	return asks[0]
}

// The agent is built by its worker, as the example has it.
func TestGoAgentExample(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(filepath.Dir(exampleDir(t, "go-agent")))
	// What it is built of is in the cache then, however cold that was, and a mistake is told here.
	build := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "go-agent"), "./examples/go-agent")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h := newHome(t, "RAIDERFLEET_RECONNECT_GRACE=1m")
	for _, name := range []string{"GOCACHE", "GOENV", "GOFLAGS", "GOMODCACHE", "GOPROXY"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		h.env = append(h.env, name+"="+strings.TrimSpace(string(value))) // the home is another one
	}
	config := filepath.Join(root, "examples", "go-agent", "fleet.yml")
	if p := h.run("config", "check", "--config", config); p.code != 0 || !strings.Contains(p.stdout.String(), "raiders.lister ") {
		t.Fatalf("config check ended with %d\n%s%s", p.code, p.stdout, p.stderr)
	}
	dev, _ := h.serve("dev", "--config", config)
	p := h.run("prompt", "--dev", "--config", config, "--cwd", root, "--yes", "list")
	if text := p.stdout.String(); p.code != 0 || !strings.Contains(text, "README.md\n") || !strings.HasSuffix(text, " in all.\n") {
		t.Errorf("it ended with %d and said\n%s%s", p.code, text, p.stderr)
	}

	// A session: cancelled while it asks, then refused, then allowed, all by one process.
	first := decode[spawned](t, h.run("spawn", "--json", "--cwd", root, "list"))
	session := string(first.Session)
	if ask := h.asked(); ask.Title != "List "+root || ask.Kind != "read" || ask.Prompt != first.Prompt {
		t.Errorf("it asks %+v", ask)
	}
	process := h.lane(first.Session).PID
	h.run("cancel", string(first.Prompt)).want(0, string(first.Prompt)+" cancelled\n")
	for _, tt := range []struct{ answer, want string }{{"reject", "I may not look."}, {"allow", "README.md"}} {
		next := decode[spawned](t, h.run("spawn", "--json", "--session", session, "list"))
		h.run("answer", string(h.asked().Ask), tt.answer)
		h.run("wait", string(next.Prompt)).want(0, string(next.Prompt)+" completed\n")
		if text := h.run("attach", "--no-follow", session).stdout.String(); !strings.Contains(text, tt.want) {
			t.Errorf("after %s it did not say %q:\n%s", tt.answer, tt.want, text)
		}
	}
	if now := h.lane(first.Session).PID; now != process {
		t.Errorf("the cancel took process %d's end; now it is %d", process, now)
	}
	dev.signal(syscall.SIGTERM)
	if code := dev.wait(); code != 0 {
		t.Errorf("dev ended with %d", code)
	}
}

// lane is what a worker does for a session.
func (h *home) lane(session subjects.SessionID) subjects.LaneStatus {
	h.t.Helper()
	for _, l := range decode[[]subjects.LaneStatus](h.t, h.run("ps", "--json")) {
		if l.Session == session {
			return l
		}
	}
	h.t.Fatalf("no worker has session %s", session)
	return subjects.LaneStatus{}
}
