package policy_test

import (
	"testing"

	"raiderfleet/internal/policy"
)

func TestRuleFor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"kind":"execute","rawInput":{"command":"git   status"}}`:                                            "execute(git status)",
		`{"kind":"execute","rawInput":{"command":"git commit -m 'a *b'"}}`:                                    `execute(git commit -m a\ \*b)`,
		`{"kind":"execute","rawInput":{"command":"ls $X"}}`:                                                   "execute(ls *)",
		`{"kind":"execute","rawInput":{"command":"ls; ls"}}`:                                                  "execute(ls)",
		`{"kind":"execute","rawInput":{"command":["bash","-lc","ls"]}}`:                                       "execute(ls)",
		`{"tool":"bash","input":{"command":"ls"}}`:                                                            "execute(ls)",
		`{"kind":"execute","title":"ls -l"}`:                                                                  "execute(ls -l)",
		`{"kind":"execute","rawInput":{"command":"ls 2>/dev/null"}}`:                                          "execute(ls)",
		`{"kind":"edit","locations":[{"path":"/work/project/src/a.go"}],"rawInput":{"file_path":"src/a.go"}}`: "edit(src/a.go)",
		`{"kind":"read","rawInput":{"path":"/etc/passwd"}}`:                                                   "read(/etc/passwd)",
		`{"kind":"read","rawInput":{"path":"a[1] (b)*.go"}}`:                                                  `read(a[1] (b)\*.go)`,
		`{"kind":"fetch","rawInput":{"url":"https://Example.org/a?b=*"}}`:                                     `fetch(https://example.org/a\?b=\*)`,
		`{"kind":"other","tool":"mcp__git__log","title":"Log (all)"}`:                                         "mcp__git__log(Log (all))",
		`{"kind":"other","tool":"mcp__fs__write","title":"x","rawInput":{"path":"a"}}`:                        "mcp__fs__write(a)",
		`{"kind":"think","title":"hm"}`:                                                                       "think(hm)",
		`{"kind":"execute","rawInput":{"command":"ls; pwd"}}`:                                                 "",
		`{"kind":"execute","rawInput":{"command":"ls > x"}}`:                                                  "",
		`{"kind":"execute","rawInput":{"command":"$X"}}`:                                                      "",
		`{"kind":"execute","rawInput":{"command":"env ls"}}`:                                                  "",
		`{"kind":"execute","rawInput":{"command":"echo 'a\nb'"}}`:                                             "",
		`{"kind":"execute"}`: "",
		`{"kind":"edit","locations":[{"path":"a"},{"path":"b"}]}`:      "",
		`{"kind":"edit","title":"a"}`:                                  "",
		`{"kind":"edit","rawInput":{"path":"~/a"}}`:                    "",
		`{"kind":"fetch","rawInput":{"url":"https://u@example.org/"}}`: "",
		`{"kind":"fetch","title":"search"}`:                            "",
		`{"title":"x"}`:                                                "",
		`{}`:                                                           "",
		`{"kind":"read","rawInput":{"url":"https://a/","path":"b"}}`:   "",
		`{"kind":"execute","rawInput":{"command":"echo 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\u202e'"}}`: "",
	} {
		got, ok := policy.RuleFor(call(t, text), cwd)
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		checkRuleFor(t, call(t, text))
	}
}

// checkRuleFor holds RuleFor to: what it gives is a rule, allows that very call, and a
// call beside it only by its own words.
func checkRuleFor(t *testing.T, c policy.Call) {
	t.Helper()
	text, ok := policy.RuleFor(c, cwd)
	if !ok {
		return
	}
	r, err := policy.ParseRule(text)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	for _, p := range []*policy.Policy{compile(t, policy.Config{Allow: []string{text}}), new(policy.Policy)} {
		if d := p.Decide(c, policy.Scope{Cwd: cwd, Rules: []policy.Rule{r}}); d.Verdict != policy.Allow || d.Rule != text {
			t.Fatalf("%+v isn't allowed by its rule %q: %+v", c, text, d)
		}
	}
}
