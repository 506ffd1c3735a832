//go:build unix

package stream

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"raiderfleet/internal/rpc"
)

// told picks the inner ids that were told, with their sessions.
func told(notes []note) string {
	var all []string
	for _, n := range notes {
		if n.method == "_raiderfleet/inner" {
			all = append(all, string(n.params))
		}
	}
	return strings.Join(all, " ")
}

func innerNote(session, inner string) string {
	return `{"inner":` + quote(inner) + `,"sessionId":` + quote(session) + `}`
}

// saysSession is a command that shows the session it was given and names another.
func saysSession() Config {
	return Config{Command: []string{"sh", "-c", `printf '{"version":1,"type":"run.started","session":{"id":"%s"}}\n{"version":1,` + done + `,"response":"given <%s>"}\n' "$1" "$2"`, "sh", "{prompt}", "{session}"}}
}

func TestInnerSession(t *testing.T) {
	t.Parallel()
	c := start(t, saysSession(), nil)
	session := c.open("/")
	if !strings.HasPrefix(session, "fresh-") {
		t.Fatalf("session %s", session)
	}
	for _, tc := range []struct{ prompt, said, told string }{
		{"one", "given <>", innerNote(session, "one")},
		{"one", "given <one>", ""},
		{"two", "given <one>", innerNote(session, "two")},
		{"", "given <two>", ""},
		{"two", "given <two>", ""},
	} {
		how, notes := c.prompt(session, tc.prompt)
		if how != "end_turn" || spoken(notes) != tc.said || told(notes) != tc.told {
			t.Errorf("%q: %s, %q, told %s", tc.prompt, how, spoken(notes), told(notes))
		}
	}
}

func TestLoadInAnotherProcess(t *testing.T) {
	t.Parallel()
	first := start(t, saysSession(), nil)
	fresh := first.open("/")
	first.prompt(fresh, "one")

	second := start(t, saysSession(), nil)
	for _, id := range []string{"one", fresh} {
		valid(t, "result:session/load", second.call("session/load", `{"sessionId":`+quote(id)+`,"cwd":"/","mcpServers":[]}`))
		if len(second.seen()) != 0 {
			t.Fatal("something was replayed")
		}
	}
	if how, notes := second.prompt("one", "one"); how != "end_turn" || spoken(notes) != "given <one>" || told(notes) != "" {
		t.Errorf("%s, %q, told %s", how, spoken(notes), told(notes))
	}
	// An id that only the adapter gave out is no inner one.
	if how, notes := second.prompt(fresh, "three"); how != "end_turn" || spoken(notes) != "given <>" || told(notes) != innerNote(fresh, "three") {
		t.Errorf("%s, %q, told %s", how, spoken(notes), told(notes))
	}
}

func TestHistoryOfTheDemo(t *testing.T) {
	t.Parallel()
	c := start(t, demoRaider(t), nil)
	session := c.open("/")
	c.prompt(session, "echo one")
	c.prompt(session, "pid")
	if how, notes := c.prompt(session, "history"); how != "end_turn" || spoken(notes) != "echo one\npid" {
		t.Fatalf("%s, %q", how, spoken(notes))
	}
}

// The hall's own raider has a command line that is fixed.
func TestHallRaider(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin := filepath.Join(dir, "raider")
	script := "#!/bin/sh\nset -e\ncase \"$*\" in *held*) exit 4 ;; esac\nexec " + os.Args[0] + " argv \"$@\"\n"
	// Not written by this process: what another test starts meanwhile would hold the file
	// open for writing, and then it can't be executed.
	if err := exec.Command("sh", "-c", `printf %s "$1" >"$2" && chmod +x "$2"`, "sh", script, bin).Run(); err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{Engine: "e", Persona: "viking"}, nil)
	c.agent.raiderBin = bin
	c.call("session/load", `{"sessionId":"20260925-101112-3f2a","cwd":`+quote(dir)+`,"mcpServers":[]}`)
	how, notes := c.prompt("20260925-101112-3f2a", "--help me")
	want := `["--stream-json","--engine","e","--pack","viking","--session","20260925-101112-3f2a","--root",` + quote(dir) + `,"--","--help me"]`
	if how != "end_turn" || spoken(notes) != want {
		t.Fatalf("%s, %s", how, spoken(notes))
	}
	how, _ = c.prompt("20260925-101112-3f2a", "held")
	if !strings.Contains(how, "held by another writer") || !strings.Contains(how, "exit code 4") {
		t.Fatal(how)
	}
}

func TestRequestsThatAreWrong(t *testing.T) {
	t.Parallel()
	c := start(t, shell(), nil)
	session := c.open("/")
	ended := c.begin(session, ev(`"type":"message","content":"on"`)+"exec sleep 1000")
	c.untilSaid("on")
	for _, tc := range []struct {
		method, params string
		code           int64
	}{
		{"session/new", `{"cwd":"relative"}`, rpc.CodeInvalidParams},
		{"session/load", `{"cwd":"/"}`, rpc.CodeInvalidParams},
		{"session/load", `{"cwd":"/","sessionId":` + quote(session) + `}`, rpc.CodeInvalidRequest},
		{"session/prompt", `{"sessionId":"nowhere","prompt":[]}`, rpc.CodeNotFound},
		{"session/prompt", `{"sessionId":` + quote(session) + `,"prompt":[]}`, rpc.CodeInvalidRequest},
		{"session/prompt", `{"sessionId":` + quote(session) + `,"prompt":[{"type":"audio"}]}`, rpc.CodeInvalidParams},
		{"session/set_mode", `{}`, rpc.CodeMethodNotFound},
	} {
		_, err := c.conn.Call(t.Context(), tc.method, json.RawMessage(tc.params))
		var fault *rpc.Error
		if !errors.As(err, &fault) || fault.Code != tc.code {
			t.Errorf("%s %s: %v", tc.method, tc.params, err)
		}
	}
	c.cancel(session)
	if how := wait(t, ended); how != "cancelled" {
		t.Fatal(how)
	}
}
