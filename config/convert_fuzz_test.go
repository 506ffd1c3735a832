package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"raiderfleet/config"
)

// FuzzConvert: a hall's file that loads becomes a fleet.yml that means the same.
func FuzzConvert(f *testing.F) {
	for _, s := range []string{
		hallFile, "", "raiders: {a: {packs: [x], engine: y}}", "x: &x {a: b}\nraiders: {b: *x}", "# a\nacp: {port: 1} # b\n# c\n", "? [a]\n: b", "raiders: [{name: a}]",
		"logs:\n  # x\n  colour: red\n", "raiders:\n  a: # x\n    env: {A: '1'}\n    # y\n", "on_disconnect: |\n  drop\n", "frontdoor: {}\nacp: {host: h}", "raiders:\n- &x {name: a, kind: demo}\n",
		"%YAML 1.1\n---\nfleet: a\n...\n", "fleet: !!str a\n", "raiders: {a: {env: {A: \"x\\ny\", B: ' '}}}", "raiders: {a: {description: \"# x\"}}",
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file []byte) {
		read := func(name string, data []byte) (*config.Config, error) {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			o := options(dir, nil, nil)
			o.Path = path
			return config.Load(o)
		}
		hall, err := read(".raider-hall.yml", file)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := config.Convert(&out, "the file", file); err != nil {
			t.Fatalf("%q loads and can't be converted: %v", file, err)
		}
		fleet, err := read("fleet.yml", out.Bytes())
		if err != nil {
			t.Fatalf("%q became %q: %v", file, out.String(), err)
		}
		if got, want := meaning(fleet), meaning(hall); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became %q:\n%+v\nnot\n%+v", file, out.String(), got, want)
		}
	})
}
