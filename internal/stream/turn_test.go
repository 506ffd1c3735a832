//go:build unix

package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/rpc"
)

func TestDemoWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ prompt, option, want string }{
		{"echo hello  fleet", "", "hello  fleet"},
		{"ask", "allow_once", "allowed once"},
		{"ask Delete it", "allow_always", "allowed always"},
		{"ask", "reject_once", "rejected"},
		{"ask", "never_offered", "rejected"},
		{"cwd", "", "/"},
		{"think", "", "thought about it"},
		{"tool", "", "counted to three"},
		{"plan", "", "planned"},
		{"noise", "", "quiet quiet quiet quiet quiet again"},
		{"sleep 0", "", "slept 0s"},
		{"stream 3 2", "", "xxxxxx"},
	} {
		t.Run(tc.prompt+tc.option, func(t *testing.T) {
			t.Parallel()
			c := start(t, demoRaider(t), selects(tc.option))
			how, notes := c.prompt(c.open("/"), tc.prompt)
			if how != "end_turn" || spoken(notes) != tc.want {
				t.Fatalf("got %s, %q; stderr %s", how, spoken(notes), c.stderr)
			}
		})
	}
}

func TestEndings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, script, want string }{
		{"completed", ev(done), "end_turn"},
		{"completed, exit code 3", ev(done) + "exit 3", "end_turn"},
		{"failed", ev(`"type":"run.finished","status":"failed","error":"out of luck"`) + "exit 1", "error: out of luck"},
		{"failed without a word", ev(`"type":"run.finished","status":"failed"`), "error: the run failed and gave no reason"},
		{"cancelled by itself", ev(`"type":"run.finished","status":"cancelled"`), "cancelled"},
		{"interrupted", ev(`"type":"run.finished","status":"interrupted","signal":"TERM"`), "error: the run was interrupted by signal TERM"},
		{"refused", ev(`"type":"run.finished","status":"refused","error":"not that"`), "error: not that"},
		{"refused with a response", ev(`"type":"run.finished","status":"refused","response":"never"`), "error: never"},
		{"unknown status", ev(`"type":"run.finished","status":"tired"`), "error: the run ended with a status that is not known"},
		{"nothing", "", "error: ended without a result (exit code 0)"},
		{"exit code", "echo oh dear >&2; echo on stdout; exit 3", "error: ended without a result (exit code 3)\noh dear\non stdout"},
		{"exit code 4 means nothing to others", "exit 4", "error: ended without a result (exit code 4)"},
		{"killed", "kill -9 $$", "error: ended without a result (killed by signal 9)"},
		{"another version", `echo '{"version":2,"type":"run.finished","status":"completed"}'`, "error: ended without a result (exit code 0)\nraiderfleet: an event of an unknown version is left out"},
		{"lines of stderr", "i=0; while [ $i -lt 30 ]; do echo $i >&2; i=$((i+1)); done; exit 1", "error: ended without a result (exit code 1)\n20\n21\n22\n23\n24\n25\n26\n27\n28\n29"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, shell(), nil)
			how, _ := c.prompt(c.open("/"), tc.script)
			if tc.name == "exit code" {
				// The two are written to different pipes: their order is open.
				how = strings.Replace(how, "\non stdout\noh dear", "\noh dear\non stdout", 1)
			}
			if how != tc.want {
				t.Fatalf("got %q", how)
			}
		})
	}
}

func TestRefusalIsMarked(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	session := c.open("/")
	for status, want := range map[string]string{"refused": `{"raiderfleet":{"outcome":"refused"}}`, "failed": ""} {
		_, err := c.conn.Call(t.Context(), "session/prompt", promptParams(session, ev(`"type":"run.finished","error":"x","status":"`+status+`"`)))
		var fault *rpc.Error
		if !errors.As(err, &fault) || string(fault.Data) != want {
			t.Errorf("%s: %v, data %s", status, err, fault.Data)
		}
	}
}

func TestFactsOfTheRunAreKept(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	got := c.call("session/prompt", string(promptParams(c.open("/"), ev(done+`,"metrics":{"raids":1.50},"elapsed":2`))))
	if want := `{"stopReason":"end_turn","_meta":{"raiderfleet":{"run":{"elapsed":2,"metrics":{"raids":1.50}}}}}`; string(got) != want {
		t.Fatalf("got %s", got)
	}
}

func TestCommandsThatCannotStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ command, cwd, prompt, want string }{
		{"no-such-command-at-all", "/", "x", "executable file not found"},
		{"./no-such-file", "/", "x", "no such file"},
		{"sh", "/no/such/directory", "x", "no such file"},
		{"sh", "/", "a\x00b", "NUL"},
		{"sh", "/", strings.Repeat("x", 200_000), "200000 bytes"},
	} {
		c := start(t, Config{Command: []string{tc.command, "{prompt}"}}, nil)
		if how, _ := c.prompt(c.open(tc.cwd), tc.prompt); !strings.HasPrefix(how, "error: ") || !strings.Contains(how, tc.want) {
			t.Errorf("%s in %s: %q", tc.command, tc.cwd, how)
		}
	}
}

// A relative program counts from the session's directory.
func TestRelativeProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "mine")); err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{Command: []string{"./mine", "-c", "{prompt}"}}, nil)
	if how, _ := c.prompt(c.open(dir), ev(done)); how != "end_turn" {
		t.Fatal(how)
	}
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Command: []string{os.Args[0], "argv", "--session={session}", "{model}", "--", "{prompt}"}}, nil)
	session := c.open("/")
	for _, prompt := range []string{"-rf", "--session=evil", "--", "", " ", "a\nb", "$(touch /tmp/x);`id`", `"'\`, "{session}{cwd}", "*", "日本語😀", "\u2028"} {
		how, notes := c.prompt(session, prompt)
		var got []string
		if err := json.Unmarshal([]byte(spoken(notes)), &got); err != nil || how != "end_turn" {
			t.Fatalf("%q: %s, %v", prompt, how, err)
		}
		if len(got) != 3 || got[0] != "" || got[1] != "--" || got[2] != prompt {
			t.Errorf("%q arrived as %q", prompt, got)
		}
	}
}

func TestEnvironmentIsHandedOn(t *testing.T) {
	t.Setenv("RAIDERFLEET_TEST_EMPTY", "")
	t.Setenv("RAIDERFLEET_TEST_FULL", "a b=c")
	t.Setenv(envSocket, "of another run")
	config := shell()
	config.PermissionEnv = []string{"OTHER_SOCKET"}
	c := start(t, config, nil)
	how, notes := c.prompt(c.open("/"), `
test "${RAIDERFLEET_TEST_EMPTY-unset}" = "" && test "$RAIDERFLEET_TEST_FULL" = "a b=c" || exit 1
test -S "$RAIDERFLEET_PERMISSION_SOCKET" && test "$OTHER_SOCKET" = "$RAIDERFLEET_PERMISSION_SOCKET" || exit 2
read nothing && exit 4
`+ev(done+`,"response":"all there"`))
	if how != "end_turn" || spoken(notes) != "all there" {
		t.Fatalf("%s; %s", how, c.stderr)
	}
	// A shell hides that a variable is there twice, and others take the first one.
	c = start(t, Config{Command: []string{"env"}}, nil)
	c.prompt(c.open("/"), "")
	if n := strings.Count(c.stderr.String(), "\n"+envSocket+"="); n != 1 {
		t.Errorf("the socket is there %d times", n)
	}
}

func TestLargeLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, mib := range []int{1, 8, 17} {
		text := strings.Repeat("é", mib<<19)
		line := `{"version":1,"type":"message","content":"` + text + `"}` + "\n" + `{"version":1,` + done + "}\n"
		name := filepath.Join(dir, fmt.Sprint(mib))
		if err := os.WriteFile(name, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		c := start(t, Config{Command: []string{"cat", "{prompt}"}}, nil)
		how, notes := c.prompt(c.open("/"), name)
		if mib > 16 {
			text = "" // longer than a line may be: left out, and said so
		}
		if got := spoken(notes); how != "end_turn" || got != text {
			t.Errorf("%d MiB: %s, %d bytes", mib, how, len(got))
		}
		if (mib > 16) != strings.Contains(c.stderr.String(), "left out") {
			t.Errorf("%d MiB: stderr %.200s", mib, c.stderr)
		}
	}
}

// A worker that is slow to read loses nothing of a command that has ended.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "events")
	// More than is read at once, and the rest fits into the pipe.
	events := strings.Repeat(`{"version":1,"type":"message","content":"`+strings.Repeat("x", 1000)+`"}`+"\n", 70)
	if err := os.WriteFile(name, []byte(events+`{"version":1,`+done+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{Command: []string{"cat", "{prompt}"}}, nil)
	c.agent.drainGrace = 50 * time.Millisecond
	gate := make(chan struct{})
	c.gate.Store(&gate)
	session := c.open("/")
	ended := c.begin(session, name)
	wait(t, c.exited(session))
	<-time.After(3 * c.agent.drainGrace) // it has to pass while nothing is read
	close(gate)
	if how := wait(t, ended); how != "end_turn" || len(spoken(c.seen())) != 70_000 {
		t.Fatal(how)
	}
}

// exited is closed when the command of the session's run has ended.
func (c *client) exited(session string) <-chan struct{} {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		c.agent.mu.Lock()
		r := c.agent.sessions[session].run
		c.agent.mu.Unlock()
		if r == nil {
			continue
		}
		r.mu.Lock()
		p := r.proc
		r.mu.Unlock()
		if p != nil {
			return p.exited
		}
	}
	c.t.Fatal("no command was started")
	return nil
}

func TestGarbageGoesToStderrBounded(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	how, notes := c.prompt(c.open("/"), "i=0; while [ $i -lt 500 ]; do echo stray $i; i=$((i+1)); done; printf '\\377\\376{\\n'; "+ev(done+`,"response":"x"`))
	if how != "end_turn" || spoken(notes) != "x" {
		t.Fatalf("%s, %q", how, spoken(notes))
	}
	if n := strings.Count(c.stderr.String(), "\n"); n != maxStrayLines || !strings.Contains(c.stderr.String(), "left out") {
		t.Fatalf("%d lines on stderr", n)
	}
}
