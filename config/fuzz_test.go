package config_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"raiderfleet/config"
)

// FuzzLoad holds Load to: never a panic; either a configuration that is whole, or
// problems that each have a text.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"", "fleet: north\nraiders:\n- name: a\n  command: [x]\n  env: {A: b}\n", "raiders: {a: {kind: demo}, b: }",
		"a: &a [*a]\n", "&a raiders: [*a]", "nats: {urls: [\"nats://u:p@[::1]:4222\"], tls: {ca: x}}\n---\n", "? [a]: b", "<<: {fleet: x}",
		"ack_wait: 1e400\nidle_ttl: 99999999999999999999\nfrontdoor: {max_line: 9999999999999GiB, listen: \"[::1]:0\"}", "\xff\xfe", "fleet: \"\\0\"", "raiders:\n- &x {name: a, kind: demo}\n- *x\n",
	} {
		f.Add([]byte(s), "5s")
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file []byte, wait string) {
		path := filepath.Join(dir, "fleet.yml")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(options(dir, map[string]string{"RAIDERFLEET_IDLE_TTL": wait}, nil))
		if err != nil {
			var problems *config.Problems
			if !errors.As(err, &problems) || len(problems.List) == 0 {
				t.Fatalf("not a list of problems: %v", err)
			}
			for _, p := range problems.List {
				if p.Text == "" || p.Origin.Line < 0 {
					t.Fatalf("an empty problem: %+v", p)
				}
			}
			return
		}
		if len(c.Raiders) == 0 || c.Worker.MaxWarm < c.Worker.Capacity || !filepath.IsAbs(c.StateDir) || c.IdleTTL < 0 {
			t.Fatalf("half a configuration: %+v", c)
		}
		for _, r := range c.Raiders {
			if got, err := c.ResolveRaider(r.Name); err != nil || got.Raider != r.Name || got.Slot != "" {
				t.Fatalf("raider %q: %+v, %v", r.Name, got, err)
			}
		}
		config.Describe(io.Discard, c)
	})
}
