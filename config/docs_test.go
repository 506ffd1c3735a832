package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"raiderfleet/config"
)

// row is the line of docs/config.md for a key.
func row(k config.Key) string {
	if k.Env == "" {
		return fmt.Sprintf("| `%s` | %s | %s |", strings.TrimPrefix(k.Path, "raiders."), k.Default, k.About)
	}
	return fmt.Sprintf("| `%s` | %s | %s | `%s` | `--%s` |", k.Path, k.Default, k.About, k.Env, k.Flag)
}

// A key that is not in the documentation, or is there with another default, doesn't exist
// for a user; a row without a key is a promise that nobody keeps.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "docs", "config.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	for _, k := range config.Keys() {
		if !strings.Contains(doc, "\n"+row(k)+"\n") {
			t.Errorf("docs/config.md lacks\n%s", row(k))
		}
	}
	if got, want := len(regexp.MustCompile("(?m)^\\| `").FindAllString(doc, -1)), len(config.Keys()); got != want {
		t.Errorf("docs/config.md has %d rows, there are %d keys", got, want)
	}
}

// The examples of the documentation and the file of the compose set-up must be good.
func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"config.md", "permissions.md"} {
		data, err := os.ReadFile(filepath.Join("..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(data), -1)
		if len(blocks) == 0 {
			t.Errorf("docs/%s has no example", page)
		}
		for _, b := range blocks {
			mustLoad(t, b[1], nil, nil)
		}
	}
	var err error
	o := options(t.TempDir(), nil, nil)
	if o.Path, err = filepath.Abs(filepath.Join("..", "deploy", "fleet.yml")); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(o); err != nil {
		t.Error(err)
	}
}
