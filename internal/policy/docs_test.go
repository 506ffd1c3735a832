package policy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"raiderfleet/internal/policy"
)

// What docs/permissions.md says about a call is what is decided.
func TestTheDocumentationIsTrue(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "permissions.md"))
	if err != nil {
		t.Fatal(err)
	}
	about, rows := "", 0
	for line := range strings.SplitSeq(string(data), "\n") {
		if strings.HasPrefix(line, "| rules | ") {
			about = strings.Fields(line)[3]
			continue
		}
		m := regexp.MustCompile("^\\| (`.*`) \\| `(.*)` \\| (allowed|asked) \\|$").FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rows++
		text := strings.ReplaceAll(m[2], `\|`, "|")
		c := policy.Call{}
		switch about {
		case "line":
			c = shell(text)
		case "path":
			c = policy.Call{Kind: "edit", Paths: []string{text}}
		case "URL":
			c = policy.Call{Kind: "fetch", URLs: []string{text}}
		default:
			t.Fatalf("a table about %q", about)
		}
		var rules []string
		for _, r := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(m[1], -1) {
			rules = append(rules, r[1])
		}
		want := map[string]policy.Verdict{"allowed": policy.Allow, "asked": policy.Ask}[m[3]]
		if d := compile(t, policy.Config{Allow: rules}).Decide(c, policy.Scope{Cwd: cwd}); d.Verdict != want {
			t.Errorf("%s: %s %q", line, d.Verdict, d.Reason)
		}
	}
	if rows < 20 {
		t.Errorf("only %d rows were found", rows)
	}
	for _, mode := range policy.Modes() {
		if !strings.Contains(string(data), "\n| "+mode+" | ") {
			t.Errorf("the mode %s isn't explained", mode)
		}
	}
}
