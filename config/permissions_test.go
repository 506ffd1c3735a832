package config_test

import (
	"strings"
	"testing"

	"raiderfleet/config"
	"raiderfleet/internal/policy"
)

func TestPermissions(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `raiders:
- name: a
  command: [x]
  permissions:
    mode: accept_edits
    allow: [read, "execute(git status*)"]
    deny:
    - edit(**/.env)
- {name: b, kind: demo}
`, nil, nil)
	a := c.Raiders[0]
	if a.Permissions.Mode != "accept_edits" || len(a.Permissions.Allow) != 2 || len(a.Permissions.Deny) != 1 || a.Policy.Mode() != policy.ModeAcceptEdits {
		t.Errorf("%+v", a)
	}
	if d := a.Policy.Decide(policy.Call{Kind: "edit", Paths: []string{"x/.env"}}, policy.Scope{Cwd: "/w"}); d.Verdict != policy.Deny {
		t.Errorf("%+v", d)
	}
	if b := c.Raiders[1]; b.Policy == nil || b.Permissions.Mode != "default" {
		t.Errorf("%+v", b)
	}
	if c.Worker.AllowBypass || !mustLoad(t, "", nil, map[string]string{"worker.allow_bypass": "true"}).Worker.AllowBypass {
		t.Error("allow_bypass")
	}
}

func TestStreamRaiders(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `raiders:
- name: a
  engine: anthropic
- name: b
  kind: stream
- name: c
  kind: stream
  command: [x, "--in={session}", "{prompt}", "{cwd}", "{engine}", "{model}", "{pack}", "{}", '{"json": 1}']
  pass_env: [KEY]
- name: d
  command: [x, "{other}"]
- name: e
  packs: []
  pass_env: []
`, nil, nil)
	for i, want := range []struct {
		kind string
		own  bool
		env  int
	}{{config.KindStream, true, 32}, {config.KindStream, true, 32}, {config.KindStream, false, 1}, {config.KindACP, false, 0}, {config.KindStream, true, 0}} {
		if r := c.Raiders[i]; r.Kind != want.kind || r.HallOwn() != want.own || len(r.PassEnv) != want.env {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
}

func TestPermissionProblems(t *testing.T) {
	t.Parallel()
	_, err := load(t, `raiders:
- name: a
  kind: stream
  command: [x, "{promt}"]
  permissions:
    mode: plna
    allow:
    - read
    - edit(
    - fetch(example.org)
    deny: [read,
      "edit(../x)"]
    alow: []
- name: b
  kind: stream
  command: ["{prompt}"]
  permissions: all
- name: c
  command: [x]
  engine: e
  model: m
  persona: p
  packs: [q]
  permissions: {allow: read}
- {name: d, kind: demo, permissions: }
- {name: e}
`, nil, nil)
	want := strings.Join([]string{
		"fleet.yml:4: raiders.a.command: unknown placeholder {promt}; did you mean {prompt}? (there are {prompt} {session} {cwd} {engine} {model} {pack})",
		`fleet.yml:6: raiders.a.permissions.mode: must be default or plan or accept_edits or dont_ask or bypass, not "plna"; did you mean plan?`,
		`fleet.yml:9: raiders.a.permissions.allow: rule "edit(", at 5: the closing parenthesis is missing`,
		`fleet.yml:10: raiders.a.permissions.allow: rule "fetch(example.org)", at 6: must be a URL such as https://example.org/*`,
		`fleet.yml:12: raiders.a.permissions.deny: rule "edit(../x)", at 5: '..' never matches: paths are cleaned first; write the whole path`,
		"fleet.yml:13: raiders.a.permissions.alow: unknown key; did you mean allow?",
		"fleet.yml:16: raiders.b.command: the program can't hold a placeholder, only its arguments can",
		"fleet.yml:17: raiders.b.permissions: must be a mapping of keys to values",
		"fleet.yml:20: raiders.c.engine: is only for kind stream, not acp",
		"fleet.yml:21: raiders.c.model: is only for kind stream, not acp",
		"fleet.yml:22: raiders.c.persona: is only for kind stream, not acp",
		"fleet.yml:23: raiders.c.packs: is only for kind stream, not acp",
		"fleet.yml:24: raiders.c.permissions.allow: must be a list, such as [first, second]",
		"fleet.yml:25: raiders.d.permissions: must be a mapping of keys to values",
		"fleet.yml:26: raiders.e.command: must be given for kind acp: a list such as [my-agent, --acp]",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}
