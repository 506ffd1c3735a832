//go:build unix

package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/rpc"
)

func (c *client) cancel(session string) {
	c.t.Helper()
	if err := c.conn.Notify("session/cancel", json.RawMessage(`{"sessionId":`+quote(session)+`}`)); err != nil {
		c.t.Fatal(err)
	}
}

// on is a script that says that it runs, after setting up.
func on(setup, rest string) string {
	return setup + "\n" + ev(`"type":"message","content":"on"`) + rest
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, script string }{
		{"no handler", on("", "exec sleep 1000")},
		{"says so", on("trap '"+strings.TrimSpace(strings.ReplaceAll(ev(`"type":"run.finished","status":"cancelled"`), "'", `'\''`))+"; exit 130' INT", "while :; do sleep 1000 & wait; done")},
		{"completes nevertheless", on("trap '"+strings.TrimSpace(strings.ReplaceAll(ev(done), "'", `'\''`))+"; exit 0' INT", "while :; do sleep 1000 & wait; done")},
		{"fails", on("trap 'exit 7' INT", "while :; do sleep 1000 & wait; done")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, shell(), nil)
			session := c.open("/")
			ended := c.begin(session, tc.script)
			c.untilSaid("on")
			c.cancel(session)
			if how := wait(t, ended); how != "cancelled" {
				t.Fatal(how)
			}
			if how, _ := c.prompt(session, ev(done)); how != "end_turn" {
				t.Fatalf("the next turn: %s", how)
			}
		})
	}
}

// A second SIGINT makes the hall's raider end without a word, so a cancel that is repeated
// sends none.
func TestCancelSendsOneSignal(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	session := c.open("/")
	ended := c.begin(session, on("trap 'n=$((n+1)); printf \"%s\\n\" \"{\\\"version\\\":1,\\\"type\\\":\\\"message\\\",\\\"content\\\":\\\"INT $n\\\"}\"' INT; trap 'exit 0' TERM",
		"while :; do sleep 1000 & wait; done"))
	c.untilSaid("on")
	c.cancel(session)
	c.untilSaid("INT 1")
	c.cancel(session)
	c.cancel(session)
	// What is sent to the process itself is passed on.
	for !c.agent.signal(syscall.SIGTERM) {
		t.Fatal("no run is on")
	}
	if how := wait(t, ended); how != "cancelled" {
		t.Fatal(how)
	}
	if got := spoken(c.seen()); strings.Contains(got, "INT 2") {
		t.Fatal(got)
	}
}

// Escalation as the worker does it: SIGINT and SIGTERM reach the command.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]string{syscall.SIGINT: "signal 2", syscall.SIGTERM: "signal 15"} {
		c := start(t, shell(), nil)
		ended := c.begin(c.open("/"), on("", "exec sleep 1000"))
		c.untilSaid("on")
		c.agent.signal(sig)
		if how := wait(t, ended); !strings.Contains(how, "ended without a result (killed by "+want) {
			t.Fatal(how)
		}
	}
}

// The demo is like the hall's raider: SIGTERM, and a second SIGINT, interrupt it.
func TestInterruptedDemo(t *testing.T) {
	t.Parallel()
	for _, signals := range [][]syscall.Signal{{syscall.SIGTERM}, {syscall.SIGINT, syscall.SIGINT}} {
		c := start(t, demoRaider(t), nil)
		ended := c.begin(c.open("/"), "hang")
		for {
			if n := wait(t, c.notes); strings.Contains(string(n.params), "run.state") {
				break
			}
		}
		for _, sig := range signals {
			c.agent.signal(sig)
		}
		// Two signals of a kind may become one: until it ends, more are sent.
		var how string
		for how == "" {
			select {
			case how = <-ended:
			case <-time.After(10 * time.Millisecond):
				c.agent.signal(signals[0])
			}
		}
		if !strings.HasPrefix(how, "error: the run was interrupted by signal ") {
			t.Fatal(how)
		}
	}
}

// A signal that comes before the command does cancels the turn.
func TestSignalBeforeTheCommand(t *testing.T) {
	t.Parallel()
	a := newAgent(shell(), "", io.Discard, slog.New(slog.DiscardHandler))
	s := &session{id: "s", cwd: "/"}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s.run, s.cancel = newRun(a, nil, s, "exit 1"), cancel
	a.sessions["s"] = s
	if !a.signal(syscall.SIGTERM) {
		t.Error("no run is on")
	}
	if end := s.run.perform(ctx); end.result != (turnEnd{StopReason: "cancelled"}) {
		t.Errorf("got %+v", end)
	}
}

func TestCancelOfTheRequest(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	session := c.open("/")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.conn.Call(ctx, "session/prompt", promptParams(session, on("", "exec sleep 1000")))
		ended <- err
	}()
	c.untilSaid("on")
	cancel()
	if err := wait(t, ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// The next prompt is taken as soon as the command has ended.
	var how string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if how, _ = c.prompt(session, ev(done)); how == "end_turn" {
			return
		}
	}
	t.Fatal(how)
}

// A cancel right behind the prompt finds it, whether its command has started or not.
func TestCancelAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Command: []string{"sleep", "1000"}}, nil)
	session := c.open("/")
	for range 30 {
		ended := make(chan string, 1)
		line := `{"jsonrpc":"2.0","id":"x","method":"session/prompt","params":` + string(promptParams(session, "x")) + "}\n" +
			`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":` + quote(session) + "}}\n"
		go func() {
			for {
				// Answers to nobody are ignored; that the session is free again is the sign.
				_, err := c.conn.Call(context.Background(), "session/load", json.RawMessage(`{"cwd":"/","sessionId":`+quote(session)+`}`))
				if _, refused := errors.AsType[*rpc.Error](err); !refused {
					ended <- "free"
					return
				}
			}
		}()
		if _, err := c.near.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		wait(t, ended)
	}
}

// What a command leaves behind in its group goes with it, and can't hold up the turn.
func TestChildrenEndWithTheRun(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	how, notes := c.prompt(c.open("/"), `sleep 1000 &
printf '{"version":1,`+done+`,"response":"%s"}\n' $!`)
	pid, err := strconv.Atoi(spoken(notes))
	if how != "end_turn" || err != nil {
		t.Fatalf("%s, %v", how, err)
	}
	untilGone(t, pid)
}

// untilGone waits until no process has that number. A zombie that nobody reaps in this
// place counts as gone.
func untilGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); running(pid); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
		<-time.After(time.Millisecond)
	}
}

func TestCommandThatGoesOnAfterItsEnd(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]string{"ends on SIGTERM": "", "ignores SIGTERM": "trap '' TERM"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, shell(), nil)
			c.agent.lingerGrace = 20 * time.Millisecond
			if how, _ := c.prompt(c.open("/"), setup+"\n"+ev(done)+"while :; do sleep 1000 & wait; done"); how != "end_turn" {
				t.Fatal(how)
			}
		})
	}
}

// A process that left the group and holds stdout does not keep the turn from ending.
func TestOutputThatStaysOpen(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	how, notes := c.prompt(c.open(t.TempDir()), `perl -MPOSIX -e 'POSIX::setsid(); open F, ">", "left"; exec "sleep", "1000"' &
while ! [ -e left ]; do :; done
printf '{"version":1,`+done+`,"response":"%s"}\n' $!`)
	pid, err := strconv.Atoi(spoken(notes))
	if how != "end_turn" || err != nil {
		t.Fatalf("%s, %v", how, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("it was to be alive: %v", err)
	}
}

// Neither does one that writes on, whether the run has finished or just ended.
func TestOutputThatGoesOn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"end_turn": `printf '{"version":1,` + done + `}\n'`, "error: ended without a result (exit code 0)": ":"} {
		c := start(t, shell(), nil)
		c.agent.drainGrace = 100 * time.Millisecond
		dir := t.TempDir()
		how, _ := c.prompt(c.open(dir), `perl -MPOSIX -e 'POSIX::setsid(); $| = 1; open F, ">", "left.new"; print F $$; close F; rename "left.new", "left";
while (1) { print "{\"version\":1,\"type\":\"message\",\"content\":\"late\"}\n"; print STDERR "late\n"; select undef, undef, undef, 0.01 }' &
while ! [ -e left ]; do :; done
`+end)
		if text, err := os.ReadFile(filepath.Join(dir, "left")); err == nil {
			pid, _ := strconv.Atoi(string(text))
			_ = syscall.Kill(pid, syscall.SIGKILL) // a broken pipe may have ended it
		}
		if first, _, _ := strings.Cut(how, "\n"); first != name {
			t.Errorf("it ended with %q, want %q", how, name)
		}
	}
}

func TestEndOfInputEndsTheCommand(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]string{"ends on SIGTERM": "", "ignores SIGTERM": "trap '' TERM INT"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, shell(), nil)
			ended := c.begin(c.open("/"), on(setup, `printf '{"version":1,"type":"message","content":"%s!"}\n' $$; while :; do sleep 1000 & wait; done`))
			c.untilSaid("on")
			pid := 0
			for pid == 0 {
				if text, ok := strings.CutSuffix(spoken([]note{wait(t, c.notes)}), "!"); ok {
					pid, _ = strconv.Atoi(text)
				}
			}
			_ = c.near.Close()
			if code := wait(t, c.exit); code != 0 {
				t.Errorf("exit code %d", code)
			}
			c.exit <- 0 // for the cleanup
			untilGone(t, pid)
			wait(t, ended)
		})
	}
}

// A worker that reads nothing any more can't keep the process from ending.
func TestEndWhileNobodyReads(t *testing.T) {
	t.Parallel()
	c := start(t, demoRaider(t), nil)
	session := c.open("/")
	c.begin(session, "stream 100000000 1000")
	c.untilSaid("xxx")
	_ = c.near.Close()
	wait(t, c.exit)
	c.exit <- 0 // for the cleanup
}
