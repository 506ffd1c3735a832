package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"raiderfleet/internal/policy"
)

// FuzzRule holds the parser of rules to: never a panic; what it takes it takes again, and
// what it refuses has a place in the text and a reason.
func FuzzRule(f *testing.F) {
	for _, s := range []string{"read", "edit(src/**)", "fetch(https://*.example.org:1/*?)", `execute(a\ b\)`, "x(((", "mcp__*(a)", "edit(**/**/a)", "fetch(://)", "fetch(*://*"} {
		f.Add(s, "src/a")
	}
	f.Fuzz(func(t *testing.T, text, about string) {
		r, err := policy.ParseRule(text)
		if err != nil {
			var problem *policy.RuleError
			if !asRuleError(err, &problem) || problem.Text == "" || problem.Offset < 0 || problem.Offset > len(text) {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		if again, err := policy.ParseRule(r.String()); err != nil || again.String() != text {
			t.Fatalf("%q: %v", text, err)
		}
		p := compile(t, policy.Config{Allow: []string{text}})
		for _, kind := range []string{"read", "execute", "fetch", "other", ""} {
			c := policy.Call{Kind: kind, Tool: about, Title: about, Paths: []string{about}, URLs: []string{about}}
			p.Decide(c, policy.Scope{Cwd: cwd})
		}
	})
}

func asRuleError(err error, to **policy.RuleError) bool {
	e, ok := err.(*policy.RuleError) //nolint:errorlint // it is never wrapped
	*to = e
	return ok
}

// FuzzLine holds the policy to: never a panic; a line is allowed only when every command
// that the parser finds in it begins with an allowed word; a deny rule never makes an
// allow, an allow rule never a deny; RuleFor keeps its promise.
func FuzzLine(f *testing.F) {
	for _, s := range []string{
		"git status", "git status; rm x", "git $(rm x)", "git <<E\n$(rm)\nE", "git >x", "X=1 git", "sh -c 'git log'", "f() { git; }", "git \"${x:-`rm`}\"",
		"for f in a; do git $f; done", "if git; then ls; fi", "env git", "g''it 'a b'", "$'\\x67it'", "{ git; } &", "case a in b) git;; esac", "[[ a ]]", "((a))", "\xff", "git\\\n", "(((((",
	} {
		f.Add(s, "rm *")
	}
	f.Fuzz(func(t *testing.T, line, pattern string) {
		c := shell(line)
		narrow := policy.Config{Allow: []string{"execute(git *)", "execute(git)", "execute(ls*)"}}
		d := compile(t, narrow).Decide(c, policy.Scope{Cwd: cwd})
		if d.Verdict == policy.Allow {
			checkCommands(t, line)
		}
		checkRuleFor(t, c)
		rule := "execute(" + pattern + ")"
		if _, err := policy.ParseRule(rule); err != nil {
			return
		}
		for _, mode := range []policy.Mode{policy.ModeDefault, policy.ModePlan, policy.ModeAcceptEdits, policy.ModeDontAsk, policy.ModeBypass} {
			checkMonotone(t, c, mode, narrow, rule)
		}
	})
}

// checkCommands looks with the parser alone.
func checkCommands(t *testing.T, line string) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		t.Fatalf("%q is allowed and no shell line: %v", line, err)
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			name := ""
			for _, part := range n.Args[0].Parts {
				switch part := part.(type) {
				case *syntax.Lit:
					name += strings.ReplaceAll(part.Value, `\`, "")
				case *syntax.SglQuoted:
					name += part.Value
				case *syntax.DblQuoted:
					for _, inner := range part.Parts {
						if lit, ok := inner.(*syntax.Lit); ok {
							name += lit.Value
						} else {
							t.Fatalf("%q is allowed with a command that isn't fixed", line)
						}
					}
				default:
					t.Fatalf("%q is allowed with a command that isn't fixed", line)
				}
			}
			base := name[strings.LastIndexByte(name, '/')+1:]
			if name != "git" && !strings.HasPrefix(name, "ls") && !slices.Contains([]string{"sh", "bash", "dash", "zsh", "ash", "ksh", "mksh", "rbash"}, base) || len(n.Assigns) > 0 {
				t.Fatalf("%q is allowed with the command %q", line, name)
			}
		case *syntax.FuncDecl, *syntax.DeclClause, *syntax.ArithmExp, *syntax.TestClause:
			t.Fatalf("%q is allowed with %T", line, n)
		}
		return true
	})
}

// checkMonotone: one more deny never allows, one more allow never denies.
func checkMonotone(t *testing.T, c policy.Call, mode policy.Mode, base policy.Config, rule string) {
	t.Helper()
	s := policy.Scope{Cwd: cwd, AllowBypass: true}
	base.Mode = mode
	before := compile(t, base).Decide(c, s)
	more := base
	more.Deny = append(slices.Clone(base.Deny), rule)
	if after := compile(t, more).Decide(c, s); after.Verdict == policy.Allow && before.Verdict != policy.Allow || before.Verdict == policy.Deny && after.Verdict != policy.Deny {
		t.Fatalf("mode %s: deny %q made %+v of %+v", mode, rule, after, before)
	}
	more = base
	more.Allow = append(slices.Clone(base.Allow), rule)
	if after := compile(t, more).Decide(c, s); after.Verdict == policy.Deny && before.Verdict != policy.Deny || before.Verdict == policy.Allow && after.Verdict != policy.Allow {
		t.Fatalf("mode %s: allow %q made %+v of %+v", mode, rule, after, before)
	}
}

// FuzzCall: whatever an agent sends, no panic, and the promises of RuleFor and of one
// more rule hold.
func FuzzCall(f *testing.F) {
	for _, s := range []string{
		`{"kind":"edit","rawInput":{"path":"a","edits":[{"file_path":"b"}]}}`, `{"kind":"fetch","rawInput":{"url":["https://a/","b"]}}`,
		`{"kind":"execute","rawInput":{"command":["sh","-c","ls"],"cwd":"x"}}`, `{"tool":"x","title":"y","input":"z"}`, `{"locations":[{"path":null}]}`, `{"rawInput":{"a":1,"a":2}}`, `[]`, `{"kind":"edit","rawInput":{"changes":{"a":{"move_path":"/b"}}}}`,
	} {
		f.Add([]byte(s), "edit(**)")
	}
	f.Fuzz(func(t *testing.T, data []byte, rule string) {
		c, err := policy.ParseCall(json.RawMessage(data))
		if err != nil {
			return
		}
		checkRuleFor(t, c)
		if _, err := policy.ParseRule(rule); err != nil {
			return
		}
		for _, mode := range policy.Modes() {
			checkMonotone(t, c, policy.Mode(mode), policy.Config{Allow: []string{"read(src/**)", "edit(a*)"}, Deny: []string{"fetch(*://evil/*)"}}, rule)
		}
	})
}
