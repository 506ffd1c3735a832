package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"raiderfleet/internal/admin"
	"raiderfleet/subjects"
)

// A prompt leaves nothing behind; one that is to be kept is there until it is closed, and
// its raider then ends.
func TestSessionsAreClosed(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	open := func() []admin.Session { return decode[[]admin.Session](t, f.run("sessions", "--json")) }
	for text, code := range map[string]int{"echo hello": 0, "fail it": 1} {
		if p := f.run("prompt", "--connect", f.acp, text); p.code != code {
			t.Errorf("%s ended with %d: %s", text, p.code, p.stderr)
		}
	}
	if s := open(); len(s) != 0 {
		t.Errorf("open sessions: %+v", s)
	}
	f.run("prompt", "--keep", "--connect", f.acp, "echo hello").want(0, "hello\n")
	kept := open()
	if len(kept) != 1 {
		t.Fatalf("open sessions: %+v", kept)
	}
	id := string(kept[0].Session)
	next := decode[spawned](t, f.run("spawn", "--json", "--session", id, "sleep 1000"))
	pid := f.lane(kept[0].Session).PID
	f.run("session", "close", id).want(0, id+" closed\n")
	f.run("wait", string(next.Prompt)).want(130, string(next.Prompt)+" cancelled\n")
	if s := open(); len(s) != 0 || pid == 0 || syscall.Kill(pid, 0) == nil {
		t.Errorf("open sessions %+v, process %d is there: %v", s, pid, syscall.Kill(pid, 0) == nil)
	}
	poll(t, "its lane to be given up", func() bool { return strings.TrimSpace(f.run("ps", "--json").stdout.String()) == "[]" })
	if p := f.run("session", "close", "--json", id); p.code != 0 || decode[sessionClosed](t, p).Session != kept[0].Session {
		t.Errorf("closed again: %d %s%s", p.code, p.stdout, p.stderr)
	}
	f.run("session", "close", "nobody").want(1, "", "nobody: no such session")
}

func TestSpawnAndLook(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	p := f.run("spawn", "echo hello")
	ids := strings.Fields(p.stdout.String())
	if p.code != 0 || len(ids) != 2 {
		t.Fatalf("spawn ended with %d and said %q; stderr:\n%s", p.code, p.stdout, p.stderr)
	}
	prompt, session := ids[0], ids[1]
	ended := decode[admin.Ended](t, f.run("wait", "--json", prompt))
	if string(ended.Session) != session || ended.State != subjects.RunCompleted || ended.StopReason != "end_turn" || ended.Raider != "demo" {
		t.Errorf("wait said %+v", ended)
	}
	// The run goes on when spawn has left, and the others know its ids.
	in := f.start("spawn", "--json", "--raider", "1demo", "-")
	if _, err := io.WriteString(in.stdin, "sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if err := in.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	in.wait()
	long := decode[spawned](t, in)
	waiting := f.start("wait", string(long.Prompt))
	poll(t, "its run", func() bool {
		for _, q := range decode[[]admin.Waiting](t, f.run("queue", "--json")) {
			if q.Prompt == long.Prompt {
				return q.Why == "runs"
			}
		}
		return false
	})
	watch := f.start("attach", string(long.Session))
	watch.says(watch.stdout, "1s\n2s\n") // it was not cancelled when spawn left
	raiders := decode[[]admin.Raider](t, f.run("raiders", "--json"))
	if len(raiders) != 1 || raiders[0].Raider != "demo" || raiders[0].Running != 1 || raiders[0].Warm != 1 || len(raiders[0].Workers) != 1 {
		t.Errorf("raiders: %+v", raiders)
	}
	sessions := decode[[]admin.Session](t, f.run("sessions", "--json"))
	if len(sessions) != 2 || sessions[0].Session != long.Session || sessions[0].Slot != "1demo" || sessions[0].Activity != "running" || sessions[0].Cwd != f.dir {
		t.Errorf("sessions: %+v", sessions)
	}
	for _, table := range []*process{f.run("raiders"), f.run("sessions", "--all")} {
		if table.code != 0 || !strings.Contains(table.stdout.String(), "demo") {
			t.Errorf("%q ended with %d and said\n%s", table.args, table.code, table.stdout)
		}
	}
	f.run("cancel", string(long.Session)).want(0, string(long.Prompt)+" cancelled\n")
	if code := waiting.wait(); code != 130 || waiting.stdout.String() != string(long.Prompt)+" cancelled\n" {
		t.Errorf("wait ended with %d and said %q", code, waiting.stdout)
	}
	failed := decode[spawned](t, f.run("spawn", "--json", "fail the disk is full"))
	f.run("wait", string(failed.Prompt)).want(1, string(failed.Prompt)+" failed\n", "raiderfleet: the disk is full\n")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"wait", "nobody"}, 3, "nobody: no such prompt"},
		{[]string{"spawn", " "}, 2, "the prompt is empty"},
		{[]string{"spawn", "--raider", "nobody", "echo x"}, 1, `unknown raider "nobody"`},
		{[]string{"spawn", "--session", "nobody", "echo x"}, 1, "nobody: no such session"},
		{[]string{"spawn", "--session", session, "--raider", "demo", "echo x"}, 2, "session"},
		{[]string{"session", "reset", "nobody"}, 1, "nobody: no such session"},
		{[]string{"logs", "nobody"}, 1, "nobody: no such prompt or session"},
		{[]string{"attach", "nobody"}, 1, "nobody: no such session"},
		{[]string{"answer", "nobody", "allow"}, 1, "nobody: no such open ask"},
		{[]string{"answer", "nobody"}, 2, "arg"},
	} {
		f.run(tt.args...).want(tt.code, "", tt.want)
	}
}

// What is spawned to a slot goes on in one session, as a hall's missions do, until it is
// reset, closed or another one is begun.
func TestSpawnToASlot(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	spawn := func(args ...string) spawned {
		t.Helper()
		s := decode[spawned](t, f.run(append([]string{"spawn", "--json"}, args...)...))
		f.run("wait", string(s.Prompt)).want(0, string(s.Prompt)+" completed\n")
		return s
	}
	remembers := func() bool {
		return strings.Count(f.run("attach", "--no-follow", "slot:1demo").stdout.String(), "before") > 2
	}
	first := spawn("--raider", "1demo", "echo before")
	next := spawn("--raider", "01demo", "history")
	if next.Session != first.Session || !remembers() {
		t.Errorf("the slot's second prompt ran in %s, the first in %s", next.Session, first.Session)
	}
	for what, args := range map[string][]string{
		"another slot": {"--raider", "2demo"}, "another directory": {"--raider", "1demo", "--cwd", t.TempDir()}, "no slot": {"--raider", "demo"},
	} {
		if other := spawn(append(args, "echo x")...); other.Session == first.Session {
			t.Errorf("%s has the slot's session", what)
		}
	}
	// A client's session in the slot is its own.
	if p := f.run("prompt", "--keep", "--connect", f.acp, "--raider", "1demo", "echo mine"); p.code != 0 {
		t.Errorf("prompt ended with %d: %s", p.code, p.stderr)
	}
	if s := spawn("--raider", "1demo", "echo x"); s.Session != first.Session {
		t.Errorf("a client's session took the slot's place: %s", s.Session)
	}
	if s := spawn("--session", "acp:"+string(first.Session), "echo x"); s.Session != first.Session {
		t.Errorf("acp:%s is %s", first.Session, s.Session)
	}
	if r := decode[admin.Reset](t, f.run("session", "reset", "--json", "slot:2demo")); r.Binding != "slot:2demo" || r.InnerID == "" || r.Session == first.Session {
		t.Errorf("reset said %+v", r)
	}
	begun := spawn("--new", "--raider", "1demo", "echo after")
	if s := spawn("--raider", "1demo", "echo x"); begun.Session == first.Session || s.Session != begun.Session {
		t.Errorf("with --new %s, then %s", begun.Session, s.Session)
	}
	if remembers() {
		t.Error("slot:1demo is not the session that was begun last")
	}
	f.run("session", "close", "slot:2demo")
	f.run("session", "reset", "slot:2demo").want(1, "", "slot:2demo: no such session: none is on the slot")
	// Where nothing was spawned, the name means the only session there is.
	var client admin.Session
	for i, want := range []string{"", "slot:3demo: no such session of its own; 2 are on the slot, name one by its id"} {
		f.run("prompt", "--keep", "--connect", f.acp, "--raider", "3demo", "echo mine").want(0, "mine\n")
		if i == 0 {
			client = decode[[]admin.Session](t, f.run("sessions", "--json"))[0]
			f.run("session", "reset", "slot:3demo").want(0, string(client.Session)+" reset\n")
			continue
		}
		f.run("session", "reset", "slot:3demo").want(1, "", want)
	}
}

// A reset session's next prompt finds an agent that remembers nothing; the conversation is
// there all the same.
func TestSessionReset(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	first := decode[spawned](t, f.run("spawn", "--json", "echo before"))
	session := string(first.Session)
	f.run("wait", string(first.Prompt))
	history := func() {
		t.Helper()
		p := decode[spawned](t, f.run("spawn", "--json", "--session", session, "history"))
		f.run("wait", string(p.Prompt)).want(0, string(p.Prompt)+" completed\n")
	}
	history()
	if text := f.run("attach", "--no-follow", session).stdout.String(); strings.Count(text, "before") < 3 {
		t.Errorf("the agent should remember:\n%s", text)
	}
	f.run("session", "reset", session).want(0, session+" reset\n")
	before := strings.Count(f.run("attach", "--no-follow", session).stdout.String(), "before")
	history()
	text := f.run("attach", "--no-follow", session).stdout.String()
	if strings.Count(text, "before") != before {
		t.Errorf("the agent remembers:\n%s", text)
	}
	if r := decode[admin.Reset](t, f.run("session", "reset", "--json", session)); r.Binding != "acp:"+session || r.InnerID == "" {
		t.Errorf("reset said %+v", r)
	}
}

// talkative writes a configuration whose raider writes to stderr what is added to a file.
func (f *fleet) talkative() string {
	f.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	file := filepath.Join(f.dir, "stderr")
	if err := os.WriteFile(file, []byte("began\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	config := map[string]any{"raiders": []any{map[string]any{
		// What it writes at its start is of a prompt only where one starts it.
		"name": "bjorn", "description": "writes to stderr", "open": "lazy",
		"command": []string{"sh", "-c", `tail -n +1 -f "$1" >&2 & exec "$0" demo --state "$2"`, exe, file, filepath.Join(f.dir, "agent")},
	}}}
	body, err := json.Marshal(config) // YAML too
	if err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, "fleet.yml"), body, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

func add(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	file := f.talkative()
	f.serve("worker", "--name", "w2") // it serves bjorn
	s := decode[spawned](t, f.run("spawn", "--json", "--raider", "bjorn", "sleep 1000"))
	follow := f.start("logs", "-f", string(s.Prompt))
	follow.says(follow.stdout, "began\n")
	all := f.start("logs", "-f", "--json", string(s.Session))
	add(t, file, "more\n")
	follow.says(follow.stdout, "more\n")
	all.says(all.stdout, "more")
	f.run("cancel", string(s.Prompt))
	for _, p := range []*process{follow, all} {
		if code := p.wait(); code != 0 {
			t.Errorf("%q ended with %d; stderr:\n%s", p.args, code, p.stderr)
		}
	}
	if got := follow.stdout.String(); got != "began\nmore\n" {
		t.Errorf("it said %q", got)
	}
	first, _, _ := strings.Cut(all.stdout.String(), "\n")
	var line admin.LogLine
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Session != s.Session || line.Prompt != s.Prompt || line.Line != "began" || line.Worker == "" || line.Time.IsZero() {
		t.Errorf("%q, %v", first, err)
	}
	// Ended runs too, and by the session.
	f.run("logs", string(s.Prompt)).want(0, "began\nmore\n")
	f.run("logs", string(s.Session)).want(0, "began\nmore\n")
	raiders := decode[[]admin.Raider](t, f.run("raiders", "--json"))
	if len(raiders) != 2 || raiders[0].Raider != "bjorn" || !raiders[0].Configured || raiders[0].Description != "writes to stderr" {
		t.Errorf("raiders: %+v", raiders)
	}
	// Ctrl-C.
	again := decode[spawned](t, f.run("spawn", "--json", "--session", string(s.Session), "sleep 1000"))
	p := f.start("logs", "-f", string(s.Session))
	p.says(p.stdout, "more\n")
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 130 {
		t.Errorf("it ended with %d", code)
	}
	f.run("cancel", string(again.Prompt))
}
