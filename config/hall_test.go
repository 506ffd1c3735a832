package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"raiderfleet/config"
	"raiderfleet/internal/policy"
)

// hallFile has what a hall reads, and what it ignores.
const hallFile = `# Our hall.
longhouse: false
preferred_lib_target: .raider-hall/lib

raiders:
  # The first is the default.
  bjorn:   { engine: anthropic, persona: caveman }
  lagertha:
    engine: openai
    model: gpt-4o-mini # cheap
    packs: [git-guru, perl-hacker]
    mcp: []
  freya:
  agent:
    command: [my-agent, --acp]
    permissions: {mode: plan, allow: ["execute(git status*)"]}
cron:
  - { name: 1freya, cron: '*/15 * * * *', mission: 'ping CI' }
acp:
  port: 4000
  host: 0.0.0.0
  tls: true
mcp:
  enable: false
telegram:
  bots:
    ops: { token: 'hush', allowlist: [42], routing: { '*': lagertha } }
logs: { keep_events: 5, max_log_size: 2048, colour: red }
cancel_grace: 7
permission_timeout: 60
`

func loadHall(t *testing.T, text string, env map[string]string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".raider-hall.yml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(options(dir, env, nil))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHallFile(t *testing.T) {
	t.Parallel()
	c := loadHall(t, hallFile, nil)
	if !c.Hall || c.OnDisconnect != config.Drop || c.FrontDoor.Listen != "0.0.0.0:4000" || c.CancelGrace != 7*time.Second ||
		c.PermissionTimeout != time.Minute || c.Logs.KeepEvents != 5 || c.Logs.MaxLogSize != 2048 {
		t.Errorf("%+v", c)
	}
	if got := strings.Join(c.RaiderNames(), " "); got != "bjorn lagertha freya agent" {
		t.Errorf("raiders: %s", got)
	}
	for _, r := range c.Raiders[:3] {
		if !r.HallOwn() || r.Policy == nil {
			t.Errorf("%+v", r)
		}
		// One of each sort: an engine's key under both names, the web search's, the way out.
		for _, name := range []string{"OPENAI_API_KEY", "LANGERTHA_OPENAI_API_KEY", "BRAVE_API_KEY", "https_proxy", "SSH_AUTH_SOCK", "PERL5LIB"} {
			if !slices.Contains(r.PassEnv, name) {
				t.Errorf("raider %s isn't given %s", r.Name, name)
			}
		}
	}
	if b := c.Raiders[0]; b.Engine != "anthropic" || b.Persona != "caveman" {
		t.Errorf("%+v", b)
	}
	if l := c.Raiders[1]; l.Model != "gpt-4o-mini" || strings.Join(l.Packs, " ") != "git-guru perl-hacker" {
		t.Errorf("%+v", l)
	}
	if a := c.Raiders[3]; a.Kind != config.KindACP || a.PassEnv != nil || a.Policy.Mode() != policy.ModePlan {
		t.Errorf("%+v", a)
	}
	const want = "without meaning here: longhouse (line 2), preferred_lib_target (line 3), raiders.lagertha.mcp (line 12), " +
		"cron (line 17), acp.tls (line 22), mcp (line 23), telegram (line 25), logs.colour (line 28)"
	if got := c.Warning(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var out bytes.Buffer
	config.Describe(&out, c)
	for _, part := range []string{want, ".raider-hall.yml:20", "raiders.bjorn.engine"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is missing in\n%s", part, out.String())
		}
	}
	if strings.Contains(out.String(), "hush") {
		t.Error("a token is shown")
	}
}

// A hall suggests names that begin with a capital letter, and takes any.
func TestHallNames(t *testing.T) {
	t.Parallel()
	const text = "raiders:\n  Bjorn: {engine: openai}\n  code_review:\n  ivar:\n"
	var out bytes.Buffer
	if err := config.Convert(&out, ".raider-hall.yml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*config.Config{loadHall(t, text, nil), mustLoad(t, out.String(), nil, nil)} {
		if got := strings.Join(c.RaiderNames(), " "); got != "Bjorn code_review ivar" {
			t.Errorf("raiders: %s", got)
		}
	}
}

func TestHallAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file   string
		env    map[string]string
		want   string
		origin string
	}{
		{"", nil, "127.0.0.1:38421", "default"},
		{"acp: {port: 1234}", nil, "127.0.0.1:1234", ".raider-hall.yml:1"},
		{"acp: {host: '::1'}", nil, "[::1]:38421", ".raider-hall.yml:1"},
		{"acp: {port: 0}", nil, "127.0.0.1:38421", "default"},
		{"acp:", nil, "127.0.0.1:38421", "default"},
		{"acp: {port: }", nil, "127.0.0.1:38421", "default"},
		{"acp: {port: 1234, host: h}", map[string]string{"RAIDER_HALL_ACP_PORT": "99"}, "h:99", "RAIDER_HALL_ACP_PORT"},
		{"acp: {port: 1234, host: h}", map[string]string{"RAIDER_HALL_ACP_HOST": "x", "RAIDER_HALL_ACP_PORT": ""}, "x:1234", ".raider-hall.yml:1"},
		{"acp: {port: 1234}\nfrontdoor: {listen: a:1}", nil, "a:1", ".raider-hall.yml:2"},
		{"acp: {port: 1}", map[string]string{"RAIDERFLEET_FRONTDOOR_LISTEN": "b:2", "RAIDER_HALL_ACP_PORT": "3"}, "b:2", "RAIDERFLEET_FRONTDOOR_LISTEN"},
	} {
		c := loadHall(t, tc.file, tc.env)
		if c.FrontDoor.Listen != tc.want || c.Origin("frontdoor.listen").String() != tc.origin {
			t.Errorf("%q %v: %s from %s", tc.file, tc.env, c.FrontDoor.Listen, c.Origin("frontdoor.listen"))
		}
		if len(c.Raiders) != 1 || c.Raiders[0].Name != "raider" || !c.Raiders[0].HallOwn() {
			t.Errorf("a hall without raiders: %+v", c.Raiders)
		}
	}
	// The variables are the hall's: a fleet.yml doesn't know them.
	if c := mustLoad(t, "fleet: a", map[string]string{"RAIDER_HALL_ACP_PORT": "99"}, nil); c.FrontDoor.Listen != "127.0.0.1:38421" {
		t.Error(c.FrontDoor.Listen)
	}
}

func TestHallProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"acp: {port: many}":                                 `.raider-hall.yml:1: acp.port: the port must be a number from 0 to 65535, not "many"`,
		"acp: here":                                         ".raider-hall.yml:1: acp: must be a mapping of keys to values",
		"acp: {port: [1]}":                                  ".raider-hall.yml:1: acp.port: must be a single value",
		"cancel_grace: soon":                                `.raider-hall.yml:1: cancel_grace: must be a time such as 5s, 2m or 1h30m, or a number of seconds, not "soon"`,
		"raiders: {a: {packs: git}}":                        ".raider-hall.yml:1: raiders.a.packs: must be a list, such as [first, second]",
		"raiders: {A.b: {}}":                                `.raider-hall.yml:1: raiders[0].name: must be letters, digits, '-' and '_', at most 64, not "A.b"`,
		"raiders: {a: {kind: demo, engine: x}}":             ".raider-hall.yml:1: raiders.a.engine: is only for kind stream, not demo",
		"raiders: {a: {permissions: {allow: [\"edit(\"]}}}": `.raider-hall.yml:1: raiders.a.permissions.allow: rule "edit(", at 5: the closing parenthesis is missing`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ".raider-hall.yml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(options(dir, nil, nil)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
		if err := config.Convert(&bytes.Buffer{}, ".raider-hall.yml", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("convert %s:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestHallFileIsFound(t *testing.T) {
	t.Parallel()
	dir, user := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options(dir, map[string]string{"XDG_CONFIG_HOME": user}, nil)
	hall := func(path string) bool {
		t.Helper()
		o.Path = path
		c, err := config.Load(o)
		if err != nil {
			t.Fatal(err)
		}
		return c.Hall
	}
	write(filepath.Join(user, "raiderfleet", "fleet.yml"), "fleet: user\n")
	write(filepath.Join(dir, ".raider-hall.yml"), "longhouse: true\n")
	if !hall("") {
		t.Error("a hall's file in the directory is nearer than the user's fleet.yml")
	}
	write(filepath.Join(dir, "fleet.yml"), "fleet: dir\n")
	if hall("") {
		t.Error("a fleet.yml is meant before a hall's file")
	}
	if !hall(".raider-hall.yml") {
		t.Error("a hall's file by name")
	}
	write(filepath.Join(dir, "sub", "raider-hall.yaml"), "longhouse: true\n")
	if !hall("sub/raider-hall.yaml") {
		t.Error("a hall's file under its other name")
	}
}

// meaning is a configuration without the places that its values came from.
func meaning(c *config.Config) config.Config {
	out := config.Config{
		Fleet: c.Fleet, NATS: c.NATS, Replicas: c.Replicas, StateDir: c.StateDir, AckWait: c.AckWait, FrontDoor: c.FrontDoor, Worker: c.Worker,
		PermissionTimeout: c.PermissionTimeout, CancelGrace: c.CancelGrace, ReconnectGrace: c.ReconnectGrace, IdleTTL: c.IdleTTL,
		DrainTimeout: c.DrainTimeout, MaxBacklog: c.MaxBacklog, OnDisconnect: c.OnDisconnect, Logs: c.Logs,
	}
	for _, r := range c.Raiders {
		r.Line = 0
		out.Raiders = append(out.Raiders, r)
	}
	return out
}

func TestConvert(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		hallFile, "", "# nothing\n", "longhouse: true\n", "raiders:\n  freya:\n", "on_disconnect: keep\n", "acp: {port: 1}\nfrontdoor: {max_line: 1MiB}\n",
		"frontdoor: {max_line: 1MiB}\nacp: {port: 1}\n", "frontdoor: {listen: a:1}\nacp: {port: 1}\n", "acp: {host: '::1'}\nlogs: {colour: red}\n",
		"raiders:\n- name: b\n  engine: x\n- name: c\n  kind: demo\n  mcp: []\n- {name: d, command: [x], engine: }\n",
		"x: &x {engine: openai}\nraiders: {b: *x, c: *x}\n", "raiders: {}\n", "logs:\ncancel_grace:\n",
		"raiders: {a: {kind: stream, command: [x, '{prompt}', \"a: b\"], env: {A: '1', B: \"\"}, idle_ttl: 5}}\n",
		"worker: {capacity: 3}\ncron: []\n",
	} {
		var out bytes.Buffer
		if err := config.Convert(&out, "the file", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		hall, fleet := loadHall(t, text, nil), mustLoad(t, out.String(), nil, nil)
		if got, want := meaning(fleet), meaning(hall); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nbecame\n%s\nwhich means\n%+v\nnot\n%+v", text, out.String(), got, want)
		}
		if fleet.Hall || fleet.Warning() != "" || strings.Contains(out.String(), "hush") {
			t.Errorf("became\n%s", out.String())
		}
		for _, k := range hall.Ignored {
			if !strings.Contains(out.String(), "# Left out: "+k.Key+" (line ") {
				t.Errorf("%s isn't named in\n%s", k.Key, out.String())
			}
		}
	}
	var out bytes.Buffer
	if err := config.Convert(&out, ".raider-hall.yml", []byte(hallFile)); err != nil {
		t.Fatal(err)
	}
	if out.String() != converted {
		t.Errorf("got\n%s", out.String())
	}
}

const converted = `# Made of .raider-hall.yml.

# Left out: longhouse (line 2), it means nothing here.
# Left out: preferred_lib_target (line 3), it means nothing here.
raiders:
  # The first is the default.
  bjorn: {kind: stream, engine: anthropic, persona: caveman}
  # Left out: raiders.lagertha.mcp (line 12), it means nothing here.
  lagertha:
    kind: stream
    engine: openai
    model: gpt-4o-mini # cheap
    packs: [git-guru, perl-hacker]
  freya:
    kind: stream
  agent:
    command: [my-agent, --acp]
    permissions: {mode: plan, allow: ["execute(git status*)"]}
# Left out: cron (line 17), it means nothing here.
frontdoor:
  listen: 0.0.0.0:4000
# Left out: acp.tls (line 22), it means nothing here.
# Left out: mcp (line 23), it means nothing here.
# Left out: telegram (line 25), it means nothing here.
# Left out: logs.colour (line 28), it means nothing here.
logs: {keep_events: 5, max_log_size: 2048}
cancel_grace: 7
permission_timeout: 60
# A hall forgets the waiting prompts of a client that goes.
on_disconnect: drop
`
