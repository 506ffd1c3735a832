package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/policy"
	"raiderfleet/subjects"
)

// onHost runs a worker that serves files and terminals, and a session with a directory.
func onHost(t *testing.T, change func(*Raider)) (*fleet, *testWorker, *session) {
	t.Helper()
	f := newFleet(t, 5*time.Second)
	w := f.run(func(c *Config) {
		c.Raiders[0].ClientMethods = ClientMethodsWorker
		if change != nil {
			change(&c.Raiders[0])
		}
	})
	return f, w, f.session(func(m *subjects.SessionMeta) { m.Cwd = f.path("") })
}

// calls runs a turn that makes a raider's request of each line, and returns what it was
// answered. {S} stands for the session inside the agent, {T} for the last terminal.
func (s *session) calls(requests ...string) []string {
	s.f.t.Helper()
	before := len(s.said())
	var script []string
	for _, r := range requests {
		script = append(script, "call "+r)
	}
	s.f.want(s.prompt("%s", strings.Join(script, ";")), subjects.RunCompleted, "", 10*time.Second)
	return s.said()[before:]
}

func wantAnswers(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("answer %d is %s, want %s", i, got[i], want[i])
		}
	}
}

// A raider whose client_methods are the worker's is told that there are files and
// terminals, whatever its client can.
func TestTheHostIsTold(t *testing.T) {
	t.Parallel()
	r := Raider{ClientMethods: ClientMethodsWorker}
	for _, said := range []string{"", `{"fs":{"readTextFile":false},"elicitation":{"form":{}}}`} {
		var told struct {
			FS struct {
				Read  bool `json:"readTextFile"`
				Write bool `json:"writeTextFile"`
			} `json:"fs"`
			Terminal    bool            `json:"terminal"`
			Elicitation json.RawMessage `json:"elicitation"`
		}
		if err := json.Unmarshal(r.clientCapabilities(said), &told); err != nil || !told.FS.Read || !told.FS.Write || !told.Terminal {
			t.Errorf("told %+v, %v", told, err)
		}
		if (said == "") != (told.Elicitation == nil) {
			t.Errorf("the client's own: %s", told.Elicitation)
		}
	}
}

func TestHostFiles(t *testing.T) {
	t.Parallel()
	f, _, s := onHost(t, nil)
	outside := t.TempDir()
	for name, text := range map[string]string{
		f.path("a"): "one\ntwo\nthree", f.path("bytes"): "\xff", filepath.Join(outside, "secret"): "secret",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, f.path("out")); err != nil {
		t.Fatal(err)
	}
	read := func(path, rest string) string {
		return fmt.Sprintf(`fs/read_text_file {"sessionId":"{S}","path":%s%s}`, quote(path), rest)
	}
	write := func(path, text string) string {
		return fmt.Sprintf(`fs/write_text_file {"sessionId":"{S}","path":%s,"content":%s}`, quote(path), quote(text))
	}
	wantAnswers(t, s.calls(
		read(f.path("a"), ""), read(f.path("a"), `,"line":2`), read(f.path("a"), `,"line":2,"limit":1`), read(f.path("a"), `,"line":9`),
		read(f.path("none"), ""), read(f.path("bytes"), ""), read(f.path(""), ""), read("a", ""), read("/etc/hostname", ""),
		read(f.path("out/secret"), ""), read(f.path("../x"), ""), read(f.path("a"), `,"line":-1`),
		write(f.path("new/dir/file"), "written"), read(f.path("new/dir/file"), ""), write(f.path("out/secret"), "x"), write(f.path("out/new"), "x"),
	),
		`{"content":"one\ntwo\nthree"}`, `{"content":"two\nthree"}`, `{"content":"two\n"}`, `{"content":""}`,
		`"code":-32002`, "no text in UTF-8", "no regular file", "must be absolute", "none of the session's directories",
		`"code":-32603`, "none of the session's directories", "numbers from 0",
		`{}`, `{"content":"written"}`, `"code"`, `"code"`)
	if text, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(text) != "secret" {
		t.Errorf("outside of the session's directories is %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "new")); err == nil {
		t.Error("a file was made outside of the session's directories")
	}
}

func TestHostTerminals(t *testing.T) {
	t.Parallel()
	f, w, s := onHost(t, func(r *Raider) { r.Env = map[string]string{"OWN": "raider's"} })
	got := s.calls(
		`terminal/create {"sessionId":"{S}","command":"printf '%s|%s|' \"$OWN\" \"$MORE\" && pwd","env":[{"name":"MORE","value":"2"}]}`,
		`terminal/wait_for_exit {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/output {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/release {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/output {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/create {"sessionId":"{S}","command":"printf","args":["%s","a b"],"outputByteLimit":2}`,
		`terminal/wait_for_exit {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/output {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/create {"sessionId":"{S}","command":"exec sleep 600"}`,
		`terminal/kill {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/wait_for_exit {"sessionId":"{S}","terminalId":"{T}"}`,
		`terminal/create {"sessionId":"{S}","command":"true","cwd":"/"}`,
		`terminal/create {"sessionId":"{S}","command":"no-such-program","args":["x"]}`,
		`terminal/other {"sessionId":"{S}","terminalId":"{T}"}`,
		fmt.Sprintf(`terminal/create {"sessionId":"{S}","command":"echo $$ > %s && exec sleep 600"}`, f.path("pid")),
	)
	wantAnswers(t, got,
		`"terminalId"`, `{"exitCode":0,"signal":null}`, `{"output":"raider's|2|`+strings.TrimSuffix(f.path(""), "/")+`\n","truncated":false,"exitStatus":{"exitCode":0,"signal":null}}`, `{}`, "no such terminal",
		`"terminalId"`, `{"exitCode":0`, `{"output":" b","truncated":true`,
		`"terminalId"`, `{}`, `{"exitCode":null,"signal":"SIGKILL"}`,
		"none of the session's directories", "no-such-program", "method not found", `"terminalId"`)
	// What a raider left goes with it.
	pid := f.noted("pid", 1)
	if !alive(pid) {
		t.Fatal("the terminal's command has ended")
	}
	s.warm(w)
	s.control(subjects.ControlRequest{Op: subjects.ControlClose})
	f.gone(pid, 10*time.Second)
}

// A terminal's command lives as long as the lane's lease, and no longer.
func TestATerminalsLease(t *testing.T) {
	t.Parallel()
	f, w, s := onHost(t, nil)
	s.calls(fmt.Sprintf(`terminal/create {"sessionId":"{S}","command":"echo $$ > %s && exec sleep 600"}`, f.path("pid")))
	pid := f.noted("pid", 1)
	l := s.warm(w)
	owns := f.watch(s.own(), nil)
	natstest.Eventually(t, time.Minute, "more than one lease", func() (bool, any) { return len(owns.all()) > 4, owns.types() })
	if !alive(pid) {
		t.Fatal("a renewed lease does not keep it")
	}
	l.lose("test")
	f.gone(pid, 10*time.Second)
}

// What the policy denies the worker does not do either.
func TestTheHostObeysThePolicy(t *testing.T) {
	t.Parallel()
	rules, err := policy.Compile(policy.Config{Deny: []string{"edit(locked/**)", "execute(rm *)"}})
	if err != nil {
		t.Fatal(err)
	}
	f, _, s := onHost(t, func(r *Raider) { r.Policy = rules })
	wantAnswers(t, s.calls(
		fmt.Sprintf(`fs/write_text_file {"sessionId":"{S}","path":%s,"content":"x"}`, quote(f.path("locked/a"))),
		fmt.Sprintf(`fs/write_text_file {"sessionId":"{S}","path":%s,"content":"x"}`, quote(f.path("free"))),
		`terminal/create {"sessionId":"{S}","command":"echo a && rm -rf x"}`,
		`terminal/create {"sessionId":"{S}","command":"rm","args":["-rf","x"]}`,
		`terminal/create {"sessionId":"{S}","command":"echo a"}`,
	), "refused: ", `{}`, "refused: ", "refused: ", `"terminalId"`)
	if _, err := os.Stat(f.path("locked")); err == nil {
		t.Error("it was written")
	}
}

// A raider has so many terminals and no more; what it released it may have again.
func TestHostTerminalsAreBounded(t *testing.T) {
	t.Parallel()
	_, _, s := onHost(t, nil)
	var requests, want []string
	for range maxHostTerminals {
		requests, want = append(requests, `terminal/create {"sessionId":"{S}","command":"true"}`), append(want, `"terminalId"`)
	}
	requests = append(requests, requests[0], `terminal/release {"sessionId":"{S}","terminalId":"{T}"}`, requests[0])
	want = append(want, strconv.Itoa(maxHostTerminals)+" terminals are open", `{}`, `"terminalId"`)
	wantAnswers(t, s.calls(requests...), want...)
}
