package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runHere executes one command line in this process.
func runHere(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "fleet.yml")
	if code, _, stderr := runHere(t, "", "init", dir); code != exitOK {
		t.Fatal(stderr)
	}
	code, stdout, stderr := runHere(t, "", "config", "check", "--config", path)
	if code != exitOK || !strings.Contains(stdout, "raiders.demo.kind") || stderr != "" {
		t.Fatalf("what init writes: %d %s%s", code, stdout, stderr)
	}
	if err := os.WriteFile(path, []byte("fleet: mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runHere(t, "", "init", path); code != exitFailed || !strings.Contains(stderr, "is there already; --force overwrites it") {
		t.Errorf("over a file: %d %s", code, stderr)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "fleet: mine\n" {
		t.Errorf("the file was touched: %q %v", text, err)
	}
	if code, _, stderr := runHere(t, "", "init", path, "--force"); code != exitOK {
		t.Error(stderr)
	}
	if code, _, _ := runHere(t, "", "init", filepath.Join(dir, "none", "x.yml")); code != exitFailed {
		t.Errorf("no directory: %d", code)
	}
	if code, _, _ := runHere(t, "", "init", "a", "b"); code != exitUsage {
		t.Errorf("two paths: %d", code)
	}
}

func TestConfigConvert(t *testing.T) {
	t.Parallel()
	const hall = "longhouse: true\nraiders: {bjorn: {engine: openai}}\nacp: {port: 4000}\n"
	dir := t.TempDir()
	path := filepath.Join(dir, ".raider-hall.yml")
	if err := os.WriteFile(path, []byte(hall), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := runHere(t, "", "config", "convert", path)
	if code != exitOK || !strings.Contains(out, "# Left out: longhouse (line 1)") || !strings.Contains(out, "listen: 127.0.0.1:4000") {
		t.Fatalf("%d %s%s", code, out, stderr)
	}
	if code, again, _ := runHere(t, hall, "config", "convert", "-"); code != exitOK || !strings.HasSuffix(again, strings.SplitN(out, "\n", 2)[1]) {
		t.Errorf("from stdin: %d %s", code, again)
	}
	fleet := filepath.Join(dir, "fleet.yml")
	if err := os.WriteFile(fleet, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, fleet} {
		code, out, stderr := runHere(t, "", "config", "check", "--config", file)
		if code != exitOK || !strings.Contains(out, "127.0.0.1:4000") || !strings.Contains(out, "openai") || stderr != "" {
			t.Errorf("%s: %d %s%s", file, code, out, stderr)
		}
		if named := strings.Count(out, "longhouse (line 1)"); (file == path) != (named == 1) {
			t.Errorf("%s: %s", file, out)
		}
	}
	if code, _, stderr := runHere(t, "cancel_grace: soon\n", "config", "convert", "-"); code != exitFailed || !strings.Contains(stderr, "-:1: cancel_grace: must be a time") {
		t.Errorf("a wrong file: %d %s", code, stderr)
	}
	if code, _, stderr := runHere(t, "", "config", "convert", filepath.Join(dir, "none")); code != exitFailed || !strings.Contains(stderr, "no such file") {
		t.Errorf("no file: %d %s", code, stderr)
	}
}

// A command of a script is not told each time what its fleet's servers have said.
func TestHallWarningIsTheServers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), ".raider-hall.yml")
	if err := os.WriteFile(path, []byte("longhouse: true\nraiders: {bjorn: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const named = "without meaning here: longhouse (line 1)"
	for _, tt := range []struct {
		told bool
		args []string
	}{
		{false, []string{"ps", "--nats", "nats://127.0.0.1:1"}},
		{false, []string{"prompt", "--nats", "nats://127.0.0.1:1", "echo x"}},
		{true, []string{"nats", "--listen", "nowhere"}}, // fails when it has read the file
	} {
		code, _, stderr := runHere(t, "", append(tt.args, "--config", path)...)
		if code == exitOK || strings.Contains(stderr, named) != tt.told {
			t.Errorf("%q ended with %d and wrote\n%s", tt.args, code, stderr)
		}
	}
}
