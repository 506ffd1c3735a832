package config_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raiderfleet/config"
)

// load reads text as fleet.yml of an otherwise empty place.
func load(t *testing.T, text string, env, flags map[string]string) (*config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fleet.yml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(options(dir, env, flags))
}

func options(dir string, env, flags map[string]string) config.Options {
	return config.Options{Dir: dir, Flags: flags, Env: func(name string) (string, bool) {
		if v, ok := env[name]; ok {
			return v, true
		}
		return "/home/someone", name == "HOME"
	}}
}

func mustLoad(t *testing.T, text string, env, flags map[string]string) *config.Config {
	t.Helper()
	c, err := load(t, text, env, flags)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file       string
		env, flags map[string]string
		want       []string
	}{
		"unknown keys": {
			file: "flet: x\nnats:\n  ulrs: []\nworker: {capcity: 3}\ncapacity: 4\nraiders:\n- name: a\n  kind: demo\n  comand: [x]\nzzzzzzzz: 1\n",
			want: []string{
				"fleet.yml:1: flet: unknown key; did you mean fleet?",
				"fleet.yml:3: nats.ulrs: unknown key; did you mean urls?",
				"fleet.yml:4: worker.capcity: unknown key; did you mean capacity?",
				"fleet.yml:5: capacity: unknown key; did you mean worker.capacity?",
				"fleet.yml:9: raiders.a.comand: unknown key; did you mean command?",
				"fleet.yml:10: zzzzzzzz: unknown key",
			},
		},
		"values": {
			file: "fleet: Not.Good\nreplicas: 2\nack_wait: 10ms\ncancel_grace: -1s\nidle_ttl: soon\nmax_backlog: many\non_disconnect: dorp\n" +
				"frontdoor:\n  listen: localhost\n  max_line: 3\nnats:\n  urls: nats://x\n  embedded: perhaps\n  tls: {cert: a.pem}\nstate_dir: ~/x\npermission_timeout:\ndrain_timeout: [1]\nreconnect_grace: inf\n",
			want: []string{
				`fleet.yml:1: fleet: must be lower case letters, digits, '-' and '_', at most 64, not "Not.Good"`,
				"fleet.yml:2: replicas: must be 1 or 3",
				"fleet.yml:3: ack_wait: must be from 1s to 1h",
				"fleet.yml:4: cancel_grace: can't be negative",
				`fleet.yml:5: idle_ttl: must be a time such as 5s, 2m or 1h30m, or a number of seconds, not "soon"`,
				`fleet.yml:6: max_backlog: must be a whole number, not "many"`,
				`fleet.yml:7: on_disconnect: must be keep or drop, not "dorp"; did you mean drop?`,
				`fleet.yml:9: frontdoor.listen: must be host:port, such as 127.0.0.1:38421, not "localhost"`,
				"fleet.yml:10: frontdoor.max_line: must be from 64KiB to 1GiB",
				"fleet.yml:12: nats.urls: must be a list, such as [first, second]",
				`fleet.yml:13: nats.embedded: must be true or false, not "perhaps"`,
				"fleet.yml:14: nats.tls.cert: needs nats.tls.key too",
				"fleet.yml:15: state_dir: '~' is not expanded: write the whole path",
				"fleet.yml:16: permission_timeout: has no value; leave the key out for the default",
				"fleet.yml:17: drain_timeout: must be a single value",
				`fleet.yml:18: reconnect_grace: must be a time such as 5s, 2m or 1h30m, or a number of seconds, not "inf"`,
			},
		},
		"raiders": {
			file: "raiders:\n- name: bjorn\n  command: my-agent --acp\n- name: bjorn\n  command: [x]\n- command: [x]\n- name: Bad.Name\n  command: ['']\n- name: e\n- name: f\n  kind: demo\n  command: [x]\n" +
				"- name: g\n  kind: acpp\n  on_worker_loss: never\n  max_attempts: 0\n  max_running: -1\n  env: {\"1X\": hush}\n  pass_env: [A=hush]\n- just-a-word\n- name: h\n  command: [x]\n  command: [y]\n  idle_ttl: -5\n",
			want: []string{
				"fleet.yml:3: raiders.bjorn.command: must be a list, never a shell line: one word each, such as [my-agent, --acp]",
				`fleet.yml:4: raiders[1].name: "bjorn" is there already, on line 2`,
				"fleet.yml:6: raiders[2].name: must be given",
				`fleet.yml:7: raiders[3].name: must be letters, digits, '-' and '_', at most 64, not "Bad.Name"`,
				"fleet.yml:8: raiders[3].command: the first word is the program and can't be empty",
				"fleet.yml:9: raiders.e.command: must be given for kind acp: a list such as [my-agent, --acp]",
				"fleet.yml:12: raiders.f.command: is not for kind demo: a demo raider is the program itself",
				`fleet.yml:14: raiders.g.kind: must be acp or stream or demo, not "acpp"; did you mean acp?`,
				`fleet.yml:15: raiders.g.on_worker_loss: must be fail or retry, not "never"`,
				"fleet.yml:16: raiders.g.max_attempts: must be from 1 to 100",
				"fleet.yml:17: raiders.g.max_running: must be from 0 to 10000",
				`fleet.yml:18: raiders.g.env: not a variable's name: "1X"`,
				"fleet.yml:19: raiders.g.pass_env: takes names only; a value belongs into env",
				"fleet.yml:20: raiders[7]: must be a mapping that begins with name",
				"fleet.yml:23: raiders.h.command: is there twice, first on line 22",
				"fleet.yml:24: raiders.h.idle_ttl: can't be negative",
			},
		},
		"raiders by name": {
			file: "raiders:\n  bjorn:\n  bjorn: {kind: demo}\n  c: {name: d, kind: demo}\n  e: word\n",
			want: []string{
				"fleet.yml:2: raiders.bjorn.command: must be given for kind acp: a list such as [my-agent, --acp]",
				`fleet.yml:3: raiders[1].name: "bjorn" is there already, on line 2`,
				"fleet.yml:4: raiders.c.name: is given already, by the key on line 4",
				"fleet.yml:5: raiders.e: must be a mapping of keys to values",
			},
		},
		"file, environment and flags": {
			file:  "replicas: 4\n",
			env:   map[string]string{"RAIDERFLEET_ACK_WAIT": "0", "RAIDERFLEET_WORKER_RAIDERS": "demp"},
			flags: map[string]string{"frontdoor.listen": "x:99999", "nats.urls": "nats://u:hush@:1, http://u:hush@x", "no.such": "1"},
			want: []string{
				"fleet.yml:1: replicas: must be 1 or 3",
				"RAIDERFLEET_ACK_WAIT: must be from 1s to 1h",
				`RAIDERFLEET_WORKER_RAIDERS: no raider is called "demp"; did you mean demo?`,
				"flag no.such: no such key",
				"--nats: entry 1 must be a URL such as nats://127.0.0.1:4222",
				`--listen: the port must be a number from 0 to 65535, not "99999"`,
			},
		},
		"what does not fit together": {
			file: "nats: {urls: [nats://x], embedded: true}\nreplicas: 3\nworker:\n  capacity: 8\n  max_warm: 4\n  raiders: []\n",
			want: []string{
				"fleet.yml:1: nats.embedded: can't be true together with nats.urls",
				"fleet.yml:2: replicas: 3 needs a cluster of NATS servers, nats.embedded runs one",
				"fleet.yml:5: worker.max_warm: can't be below worker.capacity (8): a live run has a process too",
				"fleet.yml:6: worker.raiders: is empty; leave it out to serve all",
			},
		},
		"secrets and places": {
			file: "raiders:\n- name: a\n  kind: demo\n  env:\n    A: [hush]\n- name: b\n  kind: demo\n  env: {B: hush, B: hush}\n- name: c\n  kind: demo\n  env: {C: }\n" +
				"- name: d\n  kind: demo\n  env: hush\n  pass_env:\n  - HOME\n  - [hush]\n  cwd: ~\n- name: e\n  kind: demo\n  pass_env: [9x]\nnats: {tls: {key: k.pem}}\n",
			env:   map[string]string{"RAIDERFLEET_NATS_URLS": "nats://u:hu%zzsh@x", "RAIDERFLEET_NATS_TLS_CA": "~/x"},
			flags: map[string]string{"worker.name": "-x", "nats.credentials_file": "a\x00b", "nats.urls": "x, ftp://u:hush@x"},
			want: []string{
				`fleet.yml:5: raiders.a.env: "A" must have a single value; "" for an empty one`,
				`fleet.yml:8: raiders.b.env: the name "B" is there twice`,
				`fleet.yml:11: raiders.c.env: "C" must have a single value; "" for an empty one`,
				"fleet.yml:14: raiders.d.env: must be a mapping of names to values",
				"fleet.yml:17: raiders.d.pass_env: every entry must be a single word or text",
				"fleet.yml:18: raiders.d.cwd: has no value; leave the key out for the default",
				`fleet.yml:21: raiders.e.pass_env: not a variable's name: "9x"`,
				"fleet.yml:22: nats.tls.key: needs nats.tls.cert too",
				"RAIDERFLEET_NATS_TLS_CA: '~' is not expanded: write the whole path",
				"--nats-credentials-file: can't hold a NUL byte",
				"--nats: entry 2 must start with nats://, tls://, ws:// or wss://",
				`--name: must be lower case letters, digits, '-' and '_', at most 64, not "-x"`,
			},
		},
		"syntax":        {file: "fleet: a\nnats: [\n", want: []string{"fleet.yml:2: is not valid YAML: did not find expected node content"}},
		"no mapping":    {file: "- a\n", want: []string{"fleet.yml:1: must be a mapping of keys to values"}},
		"two documents": {file: "fleet: a\n---\nfleet: b\n", want: []string{"fleet.yml:2: only one document is allowed in a file"}},
		"section":       {file: "nats: here\nraiders: all\n", want: []string{"fleet.yml:1: nats: must be a mapping of keys to values", "fleet.yml:2: raiders: must be a list of raiders"}},
		"no raiders":    {file: "raiders: []\n", want: []string{"fleet.yml:1: raiders: is empty; leave the key out for the built-in demo raider"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.file, tc.env, tc.flags)
			if _, ok := errors.AsType[*config.Problems](err); !ok {
				t.Fatalf("want *Problems, got %v", err)
			}
			if got, want := err.Error(), strings.Join(tc.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Error("a secret is in the text")
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := config.Load(options(dir, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	if c.File != "" || c.Fleet != "default" || c.Replicas != 1 || c.AckWait != 30*time.Second ||
		c.FrontDoor.Listen != "127.0.0.1:38421" || c.FrontDoor.MaxLine != 32<<20 ||
		c.PermissionTimeout != 2*time.Minute || c.CancelGrace != 5*time.Second || c.ReconnectGrace != 15*time.Second ||
		c.IdleTTL != 10*time.Minute || c.DrainTimeout != time.Minute || c.MaxBacklog != 1000 || c.OnDisconnect != config.Keep ||
		c.Worker.Capacity < 2 || c.Worker.MaxWarm != 4*c.Worker.Capacity || c.Worker.Name == "" || c.Worker.Raiders != nil ||
		c.StateDir != "/home/someone/.local/state/raiderfleet" || c.NATS.Embedded || c.NATS.URLs != nil {
		t.Errorf("defaults: %+v", c)
	}
	if len(c.Raiders) != 1 || c.Raiders[0].Name != "demo" || c.Raiders[0].Kind != config.KindDemo {
		t.Errorf("raiders: %+v", c.Raiders)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
fleet: north
nats: {urls: ["nats://a:4222", b], credentials_file: sub/x.creds, tls: {ca: /ca.pem}}
replicas: 3
state_dir: state
ack_wait: 2
permission_timeout: 0
cancel_grace: 1.5
idle_ttl: 1h30m
frontdoor: {listen: ":0", max_line: 64 MiB}
worker:
  name: w_1
  capacity: 3
  max_warm: 3
  raiders: [one]
raiders:
  - name: one
    command: [agent, --acp, "", 7]
    env: {A: 1, B: "x y", C: ""}
    pass_env: [HOME]
    cwd: ../here
    on_worker_loss: retry
    max_attempts: 2
    max_running: 1
    idle_ttl: 0
  - name: 1one
    kind: demo
`, nil, nil)
	dir := filepath.Dir(c.File)
	one, ok := c.Raider("one")
	if !ok || len(one.Command) != 4 || one.Command[2] != "" || one.Command[3] != "7" || one.Env["A"] != "1" || one.Env["C"] != "" ||
		one.Cwd != filepath.Join(filepath.Dir(dir), "here") || one.OnWorkerLoss != config.LossRetry || one.MaxAttempts != 2 ||
		one.MaxRunning != 1 || one.IdleTTL == nil || *one.IdleTTL != 0 || one.Line != 17 || one.Kind != config.KindACP {
		t.Errorf("raider: %+v", one)
	}
	if c.AckWait != 2*time.Second || c.PermissionTimeout != 0 || c.CancelGrace != 1500*time.Millisecond || c.IdleTTL != 90*time.Minute ||
		c.FrontDoor.MaxLine != 64<<20 || c.NATS.CredentialsFile != filepath.Join(dir, "sub/x.creds") || c.NATS.TLS.CA != "/ca.pem" ||
		c.StateDir != filepath.Join(dir, "state") || len(c.NATS.URLs) != 2 || c.Worker.Name != "w_1" || len(c.Worker.Raiders) != 1 {
		t.Errorf("config: %+v", c)
	}
	for name, want := range map[string]config.Target{
		"": {Raider: "one"}, "one": {Raider: "one"}, "2one": {Raider: "one", Slot: "2one"}, "1one": {Raider: "1one"},
	} {
		if got, err := c.ResolveRaider(name); err != nil || got != want {
			t.Errorf("ResolveRaider(%q) = %+v, %v, want %+v", name, got, err, want)
		}
	}
	if _, err := c.ResolveRaider("onee"); err == nil || err.Error() != `unknown raider "onee"; did you mean one? (configured: one, 1one)` {
		t.Errorf("the text for a person: %v", err)
	}
	var unknown *config.UnknownRaiderError
	for _, name := range []string{"two", "1two", "One", "1", "one.", strings.Repeat("9", 200) + "one"} {
		if got, err := c.ResolveRaider(name); !errors.As(err, &unknown) || len(unknown.Known) != 2 {
			t.Errorf("ResolveRaider(%q) = %+v, %v", name, got, err)
		}
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := "ack_wait: 2\nfleet: file\nreplicas: 3\nnats: {embedded: false}\n"
	env := map[string]string{"RAIDERFLEET_FLEET": "env", "RAIDERFLEET_REPLICAS": "1", "RAIDERFLEET_NATS_EMBEDDED": "true", "RAIDERFLEET_IDLE_TTL": ""}
	c := mustLoad(t, file, env, map[string]string{"fleet": "flag", "nats.urls": "nats://a, nats://b"})
	if c.Fleet != "flag" || c.Replicas != 1 || c.AckWait != 2*time.Second || c.IdleTTL != 10*time.Minute {
		t.Errorf("%+v", c)
	}
	if c.NATS.Embedded || len(c.NATS.URLs) != 2 {
		t.Errorf("a flag with URLs must win over an embedded server: %+v", c.NATS)
	}
	for key, want := range map[string]string{"fleet": "--fleet", "replicas": "RAIDERFLEET_REPLICAS", "ack_wait": "fleet.yml:1", "idle_ttl": "default"} {
		if got := c.Origin(key).String(); got != want {
			t.Errorf("origin of %s: %s, want %s", key, got, want)
		}
	}
	c = mustLoad(t, "nats: {urls: [\"nats://a\"]}\n", map[string]string{"RAIDERFLEET_NATS_EMBEDDED": "true"}, nil)
	if !c.NATS.Embedded || c.NATS.URLs != nil {
		t.Errorf("an embedded server by the environment must win over URLs of the file: %+v", c.NATS)
	}
	c = mustLoad(t, "", map[string]string{"XDG_STATE_HOME": "/var/state"}, map[string]string{"nats.credentials_file": "x.creds"})
	if c.StateDir != "/var/state/raiderfleet" || !filepath.IsAbs(c.NATS.CredentialsFile) {
		t.Errorf("state %q, credentials %q", c.StateDir, c.NATS.CredentialsFile)
	}
	// A good value that overrides doesn't hide that the file is wrong.
	if _, err := load(t, "ack_wait: soon\n", map[string]string{"RAIDERFLEET_ACK_WAIT": "5s"}, nil); err == nil {
		t.Error("a bad file passed")
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	write := func(path, fleet string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("fleet: "+fleet+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, user := t.TempDir(), t.TempDir()
	o := options(dir, map[string]string{"XDG_CONFIG_HOME": user}, nil)
	want := func(fleet string) {
		t.Helper()
		c, err := config.Load(o)
		if err != nil {
			t.Fatal(err)
		}
		if c.Fleet != fleet {
			t.Errorf("fleet %q from %q, want %q", c.Fleet, c.File, fleet)
		}
	}
	want("default")
	write(filepath.Join(user, "raiderfleet", "fleet.yml"), "user")
	want("user")
	write(filepath.Join(dir, "fleet.yml"), "dir")
	want("dir")
	write(filepath.Join(dir, "other.yml"), "other")
	o.Path = "other.yml"
	want("other")
	o.Path = "none.yml"
	if _, err := config.Load(o); err == nil || err.Error() != "none.yml: can't be read: no such file or directory" {
		t.Errorf("a file that isn't there: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "nats: {urls: [\"nats://u:hush@a:1\"]}\nraiders:\n- name: b\n  command: [x]\n  env: {TOKEN: hush}\n", nil, map[string]string{"ack_wait": "3"})
	var out bytes.Buffer
	config.Describe(&out, c)
	text := out.String()
	if strings.Contains(text, "hush") {
		t.Errorf("a secret is in\n%s", text)
	}
	for _, k := range config.Keys() {
		path := strings.Replace(k.Path, "raiders.", "raiders.b.", 1)
		if path != "raiders.b.name" && !strings.Contains(text, "\n"+path+" ") {
			t.Errorf("%s is missing in\n%s", path, text)
		}
	}
	for _, want := range []string{"--ack-wait", "fleet.yml:1", "TOKEN (values not shown)", "fleet.yml:3", "nats://***@a:1", "the default raider", "(all)", "(the session's)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
