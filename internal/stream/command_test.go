//go:build unix

package stream

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestCommandLines(t *testing.T) {
	t.Parallel()
	full := Config{Engine: "e", Model: "m", Packs: []string{"p", "q"}, Persona: "viking"}
	with := func(c Config, command ...string) Config {
		c.Command = command
		return c
	}
	for _, tc := range []struct {
		name   string
		config Config
		call   call
		want   []string
	}{
		{"hall, nothing set", Config{}, call{prompt: "do", cwd: "/w"}, []string{"raider", "--stream-json", "--root", "/w", "--", "do"}},
		{"hall, all set", full, call{"do", "s1", "/w"}, []string{
			"raider", "--stream-json", "--engine", "e", "--model", "m", "--pack", "p", "--pack", "q", "--pack", "viking",
			"--session", "s1", "--root", "/w", "--", "do",
		}},
		{"persona among the packs", Config{Packs: []string{"viking", "p"}, Persona: "viking"}, call{prompt: "x", cwd: "/"}, []string{"raider", "--stream-json", "--pack", "viking", "--pack", "p", "--root", "/", "--", "x"}},
		{"prompt like an option", Config{}, call{prompt: "--engine evil", cwd: "/"}, []string{"raider", "--stream-json", "--root", "/", "--", "--engine evil"}},
		{"whole and parts", with(full, "a", "{prompt}", "{cwd}/{session}", "x{engine}-{model}y"), call{"do it", "s", "/w"}, []string{"a", "do it", "/w/s", "xe-my"}},
		{"nothing is expanded twice", with(full, "a", "{prompt}", "--in={session}"), call{"{session}{model}", "{prompt}", "/"}, []string{"a", "{session}{model}", "--in={prompt}"}},
		{"no shell", with(Config{}, "a", "{prompt}"), call{"$(id); `id` | \"x\" 'y'\n&& z", "", "/"}, []string{"a", "$(id); `id` | \"x\" 'y'\n&& z"}},
		{"unset: option left out, others stay", with(Config{}, "a", "--session={session}", "--engine", "{engine}", "-m={model}", "--pack={pack}", "{pack}", "{session}", "x={session}", "--", "{prompt}"), call{"do", "", "/"}, []string{"a", "--engine", "", "", "", "x=", "--", "do"}},
		{"an empty prompt stays", with(Config{}, "a", "--prompt={prompt}", "{prompt}"), call{"", "", "/"}, []string{"a", "--prompt=", ""}},
		{"once for each pack", with(full, "a", "--pack={pack}", "{prompt}"), call{"do", "", "/"}, []string{"a", "--pack=p", "--pack=q", "--pack=viking", "do"}},
		{"unknown names stay", with(full, "a", "{home}", `{"a":{}}`, "{ prompt }", "{PROMPT}"), call{"do", "", "/"}, []string{"a", "{home}", `{"a":{}}`, "{ prompt }", "{PROMPT}"}},
	} {
		got, err := tc.config.argv("", tc.call)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
	if got, _ := (Config{}).argv("/opt/raider", call{prompt: "x", cwd: "/"}); got[0] != "/opt/raider" {
		t.Errorf("the program is not replaced: %q", got)
	}
	for _, c := range []call{{prompt: "a\x00b"}, {prompt: strings.Repeat("x", 128<<10)}, {cwd: "/\x00"}} {
		if got, err := (Config{}).argv("", c); err == nil {
			t.Errorf("%d bytes: %d arguments and no error", len(c.prompt), len(got))
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	want := Config{Command: []string{"a", "<{prompt}>"}, Engine: "e", Model: "m", Packs: []string{"p"}, Persona: "v", PermissionEnv: []string{"X_SOCKET"}}
	args, err := want.Args()
	if err != nil || len(args) != 2 || args[0] != "--config" {
		t.Fatalf("got %q, %v", args, err)
	}
	got, err := parseConfig(args[1])
	one, _ := json.Marshal(got)
	two, _ := json.Marshal(want)
	if err != nil || string(one) != string(two) {
		t.Fatalf("got %s, %v", one, err)
	}
	for _, bad := range []string{
		`{"command":["{prompt}"]}`, `{"command":["bin/{cwd}"]}`, `{"command":["","x"]}`, `{"comand":["x"]}`, `[]`, ``, `{}{}`,
		`{"engine":"a\u0000"}`, `{"permissionEnv":["A=B"]}`,
	} {
		if c, err := parseConfig(bad); err == nil {
			t.Errorf("%s: no error: %+v", bad, c)
		}
	}
}

func TestPromptText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want, fails string }{
		{`[{"type":"text","text":"a"},{"type":"resource_link","uri":"file:///x","name":"x"},{"type":"text","text":"b\n"}]`, "a\nfile:///x\nb\n", ""},
		{`[{"type":"resource","resource":{"uri":"file:///y","text":"one\n> two\n"}},{"type":"text","text":"a"},{"type":"resource","resource":{"uri":"z:","text":""}}]`,
			"a\n\nfile:///y:\n> one\n> > two\n\nz::\n> ", ""},
		{`[{"type":"resource","resource":{"uri":"file:///y","text":"one"}}]`, "file:///y:\n> one", ""},
		{`[{"type":"resource","resource":{"uri":"file:///y","blob":"AA=="}},{"type":"text","text":"a"}]`, "file:///y\na", ""},
		{`[]`, "", ""},
		{`[{"type":"image","data":"","mimeType":"image/png"}]`, "", "image"},
		{`"text"`, "", "array"},
		{``, "", "array"},
	} {
		got, err := promptText(json.RawMessage(tc.in))
		if got != tc.want || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: got %q, %v", tc.in, got, err)
		}
	}
}
