package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"raiderfleet/config"
)

// words splits a command line as a shell does it with plain words and quotes.
func words(line string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		if m[2] == "#" || m[2] == "&" || strings.HasPrefix(m[2], "#") {
			break
		}
		out = append(out, m[1]+m[2])
	}
	return out
}

// blocks are the fenced blocks of one language.
func blocks(t *testing.T, path, language string) []string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(body), -1) {
		out = append(out, m[1])
	}
	if len(out) == 0 {
		t.Fatalf("%s has no blocks of %s", path, language)
	}
	return out
}

// readmes are the README and those of the examples.
func readmes() []string {
	return []string{
		"../../README.md", "../../examples/hall/README.md", "../../examples/go-agent/README.md", "../../examples/shell-raider/README.md",
	}
}

// Every command of the READMEs and of docs/commands.md is one that there is, with flags that
// it has.
func TestReadmeCommandsParse(t *testing.T) {
	t.Parallel()
	all := blocks(t, "../../docs/commands.md", "sh")
	for _, path := range readmes() {
		all = append(all, blocks(t, path, "sh")...)
	}
	for _, block := range all {
		for s := bufio.NewScanner(strings.NewReader(block)); s.Scan(); {
			args := words(s.Text())
			switch {
			case len(args) > 2 && args[0] == "go" && args[2] == "./cmd/raiderfleet":
				args = args[3:]
			case len(args) > 0 && args[0] == "raiderfleet":
				args = args[1:]
			default:
				continue
			}
			root := (&app{stdout: io.Discard, stderr: io.Discard}).root()
			cmd, rest, err := root.Find(args)
			if err != nil || cmd == root {
				t.Errorf("%s: no such command: %v", s.Text(), err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", s.Text(), err)
				continue
			}
			if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				t.Errorf("%s: %v", s.Text(), err)
			}
		}
	}
}

// Every file that a README links to is there.
func TestReadmeLinks(t *testing.T) {
	t.Parallel()
	for _, path := range readmes() {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(string(body), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	}
}

// Every configuration of the README is one.
func TestReadmeConfigurationsLoad(t *testing.T) {
	t.Parallel()
	for _, block := range append(blocks(t, "../../README.md", "yaml"), blocks(t, "../../examples/go-agent/README.md", "yaml")...) {
		path := filepath.Join(t.TempDir(), "fleet.yml")
		if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(config.Options{Path: path, Env: func(string) (string, bool) { return "/", false }}); err != nil && !strings.Contains(err.Error(), "state_dir") {
			t.Errorf("%v in\n%s", err, block)
		}
	}
}
