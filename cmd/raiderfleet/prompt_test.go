package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"raiderfleet/internal/admin"
)

func TestFirstCommand(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.run("prompt", "--dev", "echo hello fleet").want(0, "hello fleet\n")
	// A throw-away fleet leaves nothing.
	if _, err := os.Stat(h.devDir()); err == nil {
		t.Errorf("%s was made", h.devDir())
	}
}

func TestPromptEnds(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr []string
	}{
		{"failed", []string{"prompt", "--dev", "fail the disk is full"}, 1, "", []string{"raiderfleet: the disk is full\n"}},
		{"unknown raider", []string{"prompt", "--dev", "--raider", "nobody", "echo x"}, 1, "", []string{"nobody", "demo"}},
		{"a slot", []string{"prompt", "--dev", "--raider", "2demo", "echo x"}, 0, "x\n", nil},
		{"allowed", []string{"prompt", "--dev", "--yes", "ask"}, 0, "allowed once\n", nil},
		{"rejected", []string{"prompt", "--dev", "--no", "ask"}, 0, "rejected\n", nil},
		{"no terminal", []string{"prompt", "--dev", "ask Run it"}, 0, "rejected\n", []string{"nobody is here who could be asked: Run it (--yes allows)\n"}},
		{"no fleet", []string{"prompt", "echo x"}, 1, "", []string{"no dev fleet is running", "--dev"}},
		{"nobody there", []string{"prompt", "--connect", "127.0.0.1:1", "echo x"}, 1, "", []string{"raiderfleet: connect to the front door"}},
		{"no text", []string{"prompt", "--dev"}, 2, "", []string{"raiderfleet: "}},
		{"blank text", []string{"prompt", "--dev", " "}, 2, "", []string{"the prompt is empty"}},
		{"both answers", []string{"prompt", "--dev", "--yes", "--no", "ask"}, 2, "", []string{"yes"}},
		{"unknown flag", []string{"prompt", "--bogus"}, 2, "", []string{"--bogus", "goes behind --", "raiderfleet prompt --help"}},
		{"too few arguments", []string{"wait"}, 2, "", []string{"raiderfleet wait got 0 arguments, it takes PROMPT\n", "raiderfleet wait --help"}},
		{"too many arguments", []string{"ps", "x"}, 2, "", []string{"raiderfleet ps got one argument, it takes none\n"}},
		{"nobody to wait at", []string{"wait", "--nats", "nats://127.0.0.1:1", "p234"}, 3, "", []string{"nats://127.0.0.1:1"}},
		{"a fleet's file", []string{"config", "convert", "fleet.yml"}, 1, "", []string{"fleet.yml is a fleet's file already"}},
		{"unknown command", []string{"frob"}, 2, "", []string{`"frob"`}},
		{"unknown subcommand", []string{"config", "frob"}, 2, "", []string{`"frob"`}},
		{"bad level", []string{"--log-level", "loud", "ps"}, 2, "", []string{"loud"}},
		{"bad configuration", []string{"--fleet", "a.b", "ps"}, 1, "", []string{"the configuration is wrong", "--fleet"}},
		{"nobody to list", []string{"ps"}, 1, "", []string{"raiderfleet dev"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			(&home{t, h.dir, h.env}).run(tt.args...).want(tt.code, tt.stdout, tt.stderr...)
		})
	}
}

func TestPromptFromStdin(t *testing.T) {
	t.Parallel()
	p := newHome(t).start("prompt", "--dev", "-")
	if _, err := io.WriteString(p.stdin, "echo from stdin"); err != nil {
		t.Fatal(err)
	}
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	p.want(0, "from stdin\n")
}

func TestPromptJSON(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	p := h.run("prompt", "--dev", "--json", "echo x")
	lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
	var update struct {
		Session string `json:"sessionId"`
		Update  struct {
			Kind string `json:"sessionUpdate"`
		} `json:"update"`
	}
	if p.code != 0 || len(lines) < 2 || json.Unmarshal([]byte(lines[0]), &update) != nil || update.Session == "" || update.Update.Kind != "agent_message_chunk" {
		t.Errorf("ended with %d and said\n%s", p.code, p.stdout)
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"stopReason":"end_turn"`) {
		t.Errorf("the last line is %s", last)
	}
	p = h.run("prompt", "--dev", "--json", "fail it")
	if p.code != 1 || !strings.Contains(p.stdout.String(), `"outcome":"failed"`) {
		t.Errorf("ended with %d and said\n%s", p.code, p.stdout)
	}
}

func TestPromptIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := newHome(t).start("prompt", "--dev", "--json", "sleep 100")
		p.says(p.stdout, "agent_message_chunk")
		p.signal(s)
		if code := p.wait(); code != 130 {
			t.Errorf("after %v it ended with %d; stderr:\n%s", s, code, p.stderr)
		}
		if got := p.stdout.String(); !strings.Contains(got, `"stopReason":"cancelled"`) {
			t.Errorf("after %v it said\n%s", s, got)
		}
	}
}

func TestSecondSignalDoesNotWait(t *testing.T) {
	t.Parallel()
	// With a grace of 0 a raider that doesn't listen goes on for ever.
	h := newHome(t, "RAIDERFLEET_CANCEL_GRACE=0")
	h.serve("dev")
	p := h.start("prompt", "hang")
	p.poll("its run", func() bool {
		queue := decode[[]admin.Waiting](t, h.run("queue", "--json"))
		return len(queue) == 1 && queue[0].Why == "runs"
	})
	// Again and again: one that comes too soon counts as the first.
	poll(t, "the end", func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGINT) // it may be gone
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	if p.code != 130 {
		t.Errorf("it ended with %d", p.code)
	}
}
