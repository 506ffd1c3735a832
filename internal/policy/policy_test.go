package policy_test

import (
	"errors"
	"strings"
	"testing"

	"raiderfleet/internal/policy"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	const (
		none  = ""
		read  = `{"kind":"read","title":"Read a","locations":[{"path":"/work/project/src/a.go"}]}`
		edit  = `{"kind":"edit","title":"Edit a","locations":[{"path":"/work/project/src/a.go"}],"rawInput":{"file_path":"src/a.go"}}`
		out   = `{"kind":"edit","locations":[{"path":"/etc/passwd"}]}`
		up    = `{"kind":"edit","rawInput":{"path":"src/../../etc/x"}}`
		two   = `{"kind":"edit","locations":[{"path":"src/a.go"},{"path":"docs/a.md"}]}`
		fetch = `{"kind":"fetch","rawInput":{"url":"https://example.org/a"}}`
		git   = `{"kind":"execute","title":"git status","rawInput":{"command":"git status"}}`
		other = `{"kind":"other","title":"Do it"}`
		blank = `{"title":"Do it"}`
	)
	for _, tc := range []struct {
		mode              policy.Mode
		allow, deny, call string
		want              policy.Verdict
		rule              string
	}{
		{"", none, none, read, policy.Ask, ""},
		{"", "read", none, read, policy.Allow, "read"},
		{"", "read", "read", read, policy.Deny, "read"},
		{"", "read(src/**)", none, read, policy.Allow, "read(src/**)"},
		{"", "read(/work/project/src/**)", none, read, policy.Allow, "read(/work/project/src/**)"},
		{"", "read(./src/*.go)", none, read, policy.Allow, "read(./src/*.go)"},
		{"", "read(*)", none, read, policy.Ask, ""},
		{"", "read(**)", none, read, policy.Allow, "read(**)"},
		{"", "read(**/a.go)", none, read, policy.Allow, "read(**/a.go)"},
		{"", "read(**/g.go)", none, `{"kind":"read","rawInput":{"path":"src/fog.go"}}`, policy.Ask, ""},
		{"", "read(**/fog.go)", none, `{"kind":"read","rawInput":{"path":"fog.go"}}`, policy.Allow, "read(**/fog.go)"},
		{"", "read(src/?.go)", none, read, policy.Allow, "read(src/?.go)"},
		{"", "edit", none, read, policy.Ask, ""},
		{"", "edit(src/**)", none, edit, policy.Allow, "edit(src/**)"},
		{"", "edit(src/**)", none, up, policy.Ask, ""},
		{"", "edit(src/**)", none, out, policy.Ask, ""},
		{"", "edit(**)", none, out, policy.Ask, ""},
		{"", "edit(/etc/*)", none, out, policy.Allow, "edit(/etc/*)"},
		{"", "edit(src/**)", none, two, policy.Ask, ""},
		{"", "edit(src/**) ;; edit(docs/**)", none, two, policy.Allow, "edit(src/**)"},
		{"", "edit", "edit(docs/**)", two, policy.Deny, "edit(docs/**)"},
		{"", "edit", "edit(DOCS/**)", two, policy.Deny, "edit(DOCS/**)"},
		{"", "edit", "edit(**/passwd)", out, policy.Deny, "edit(**/passwd)"},
		{"", none, "edit(src/**)", `{"kind":"delete","rawInput":{"path":"src/a"}}`, policy.Deny, "edit(src/**)"},
		{"", none, "edit(src/**)", `{"kind":"other","rawInput":{"path":"src/a"}}`, policy.Deny, "edit(src/**)"},
		{"", none, "edit(src/**)", `{"rawInput":{"path":"src/a"}}`, policy.Deny, "edit(src/**)"},
		{"", none, "edit(src/**)", `{"kind":"move","rawInput":{"source":"a","destination":"src/a"}}`, policy.Deny, "edit(src/**)"},
		{"", "edit", none, `{"kind":"delete","rawInput":{"path":"src/a"}}`, policy.Ask, ""},
		{"", "edit", none, `{"kind":"edit","rawInput":{"path":"~/.bashrc"}}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","title":"src/a"}`, policy.Ask, ""},
		{"", "edit", none, `{"kind":"edit","title":"src/a"}`, policy.Allow, "edit"},
		{"", "edit(src/**)", none, `{"kind":"edit","content":[{"type":"diff","path":"/etc/x"}],"rawInput":{"path":"src/a"}}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","rawInput":{"path":"src/a","path":"/etc/x"}}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","rawInput":{"path":"src/a\u0000"}}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","rawInput":{"path":{"x":1}}}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","rawInput":{"changes":{"src/a":{"move_path":"/etc/x"}}}}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","rawInput":{"edits":[{"file_path":"src/a"},{"file_path":"b"}]}}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","rawInput":{"uri":"file:///work/project/src/a"}}`, policy.Allow, "edit(src/**)"},
		{"", "fetch(https://example.org/*)", none, fetch, policy.Allow, "fetch(https://example.org/*)"},
		{"", "fetch", none, fetch, policy.Allow, "fetch"},
		{"", "fetch", "fetch(*://example.org/*)", fetch, policy.Deny, "fetch(*://example.org/*)"},
		{"", "fetch", none, `{"kind":"fetch","title":"search for x"}`, policy.Allow, "fetch"},
		{"", "read", none, `{"kind":"read","rawInput":{"command":["cat","x"]}}`, policy.Ask, ""},
		{"", "execute(cat *)", none, `{"kind":"read","rawInput":{"command":["cat","x"]}}`, policy.Allow, "execute(cat *)"},
		{"", "execute(cat *)", "read", `{"kind":"read","rawInput":{"command":["cat","x"]}}`, policy.Deny, "read"},
		{"", "execute(cat *)", "read(x)", `{"kind":"read","locations":[{"path":"x"}],"rawInput":{"command":["cat","x"]}}`, policy.Deny, "read(x)"},
		{"", "execute(git status)", none, `{"kind":"execute","rawInput":{"command":["bash","-lc","git status"],"cwd":"/work/project"}}`, policy.Allow, "execute(git status)"},
		{"", "execute(git status)", none, `{"kind":"execute","rawInput":{"command":["git","status; rm x"]}}`, policy.Ask, ""},
		{"", "execute(git status)", none, `{"kind":"execute","rawInput":{"command":"git","args":["status"]}}`, policy.Allow, "execute(git status)"},
		{"", "execute(git*)", none, `{"kind":"execute","rawInput":{"command":"git status","cwd":"/evil"}}`, policy.Ask, ""},
		{"", "execute(git*)", none, `{"kind":"execute","rawInput":{"command":"git status","env":{"PATH":"/evil"}}}`, policy.Ask, ""},
		{"", "execute(git*)", none, `{"kind":"execute","rawInput":{"command":"git status","cmd":"rm x"}}`, policy.Ask, ""},
		{"", "execute(git*)", none, `{"kind":"execute","rawInput":{"command":"git status","command":"rm x"}}`, policy.Ask, ""},
		{"", "execute(git*)", none, `{"kind":"execute","rawInput":{"command":7}}`, policy.Ask, ""},
		{"", "execute(git*)", none, `{"kind":"execute","title":"git status"}`, policy.Allow, "execute(git*)"},
		{"", "execute(git*)", none, "{\"kind\":\"execute\",\"title\":\"`git status`\"}", policy.Allow, "execute(git*)"},
		{"", "execute(git*)", none, `{"kind":"execute","title":"git status","rawInput":{"code":"rm"}}`, policy.Ask, ""},
		{"", "execute(git*)", none, `{"kind":"execute","title":"git status","rawInput":{"command":"rm x"}}`, policy.Ask, ""},
		{"", "execute ;; execute(git*) ;; perl_eval(*)", none, `{"kind":"execute","tool":"perl_eval","title":"git status","rawInput":{"code":"rm"}}`, policy.Ask, ""},
		{"", "perl_eval", none, `{"kind":"execute","tool":"perl_eval","title":"git status","rawInput":{"code":"rm"}}`, policy.Allow, "perl_eval"},
		{"", "perl_eval", "execute", `{"kind":"execute","tool":"perl_eval","rawInput":{"code":"rm"}}`, policy.Deny, "execute"},
		{"", none, "delete(secret/**)", `{"kind":"delete","rawInput":{"path":"secret"}}`, policy.Deny, "delete(secret/**)"},
		{"", "edit(src/**)", none, `{"kind":"edit","locations":[{"path":"/etc/x","PATH":"src/a"}]}`, policy.Ask, ""},
		{"", "edit(src/**)", none, `{"kind":"edit","content":[{"type":"diff","path":"/etc/x","PATH":"src/a"}],"rawInput":{"path":"src/a"}}`, policy.Ask, ""},
		{policy.ModeBypass, none, "execute(rm *)", `{"kind":"execute","tool":"perl_eval","rawInput":{"code":"rm"}}`, policy.Ask, ""},
		{"", "bash(git*)", none, `{"tool":"bash","title":"x","input":{"command":"git log"}}`, policy.Allow, "bash(git*)"},
		{"", "run_shell(git*)", none, `{"tool":"run_shell","kind":"execute","rawInput":{"command":"git log"}}`, policy.Allow, "run_shell(git*)"},
		{"", "run_shell(git*)", none, git, policy.Ask, ""},
		{"", "Write(src/**)", none, `{"kind":"edit","_meta":{"claudeCode":{"toolName":"Write"}},"rawInput":{"file_path":"src/a"}}`, policy.Allow, "Write(src/**)"},
		{"", "mcp__git__*", none, `{"kind":"other","tool":"mcp__git__log"}`, policy.Allow, "mcp__git__*"},
		{"", "mcp__git__*", none, `{"kind":"other","tool":"mcp__hub__log"}`, policy.Ask, ""},
		{"", "read", none, `{"kind":"other","tool":"read"}`, policy.Ask, ""},
		{"", none, "read", `{"kind":"other","tool":"read"}`, policy.Deny, "read"},
		{"", "other(Do *)", none, other, policy.Allow, "other(Do *)"},
		{"", "other", none, blank, policy.Ask, ""},
		{"", "other", none, `{"kind":"strange","title":"x"}`, policy.Ask, ""},
		{policy.ModePlan, none, none, read, policy.Ask, ""},
		{policy.ModePlan, none, none, fetch, policy.Ask, ""},
		{policy.ModePlan, none, none, edit, policy.Deny, ""},
		{policy.ModePlan, none, none, git, policy.Deny, ""},
		{policy.ModePlan, none, none, other, policy.Deny, ""},
		{policy.ModePlan, none, none, blank, policy.Deny, ""},
		{policy.ModePlan, none, none, `{"kind":"switch_mode"}`, policy.Deny, ""},
		{policy.ModePlan, none, none, `{"kind":"read","rawInput":{"command":"rm x"}}`, policy.Deny, ""},
		{policy.ModePlan, "execute(git status)", none, git, policy.Allow, "execute(git status)"},
		{policy.ModeAcceptEdits, none, none, edit, policy.Allow, ""},
		{policy.ModeAcceptEdits, none, none, two, policy.Allow, ""},
		{policy.ModeAcceptEdits, none, "edit(docs/**)", two, policy.Deny, "edit(docs/**)"},
		{policy.ModeAcceptEdits, none, none, out, policy.Ask, ""},
		{policy.ModeAcceptEdits, none, none, up, policy.Ask, ""},
		{policy.ModeAcceptEdits, none, none, read, policy.Ask, ""},
		{policy.ModeAcceptEdits, none, none, `{"kind":"edit","title":"src/a"}`, policy.Ask, ""},
		{policy.ModeAcceptEdits, none, none, `{"kind":"edit","rawInput":{"path":"sub/.git/hooks/pre-commit"}}`, policy.Ask, ""},
		{policy.ModeAcceptEdits, none, none, `{"kind":"edit","rawInput":{"path":".raider-hall.yml"}}`, policy.Ask, ""},
		{policy.ModeAcceptEdits, none, none, `{"kind":"edit","rawInput":{"path":"a","command":"rm"}}`, policy.Ask, ""},
		{policy.ModeAcceptEdits, none, none, `{"kind":"delete","rawInput":{"path":"a"}}`, policy.Ask, ""},
		{policy.ModeAcceptEdits, "execute(ls)", none, `{"kind":"execute","rawInput":{"command":"ls > a"}}`, policy.Allow, "execute(ls)"},
		{policy.ModeAcceptEdits, "execute(ls)", none, `{"kind":"execute","rawInput":{"command":"ls > ../a"}}`, policy.Ask, ""},
		{policy.ModeDontAsk, none, none, read, policy.Deny, ""},
		{policy.ModeDontAsk, "read", none, read, policy.Allow, "read"},
		{policy.ModeBypass, none, none, out, policy.Allow, ""},
		{policy.ModeBypass, none, none, blank, policy.Allow, ""},
		{policy.ModeBypass, none, "edit(/etc/**)", out, policy.Deny, "edit(/etc/**)"},
		{policy.ModeBypass, none, none, `{"kind":"execute","rawInput":{"command":"eval $X"}}`, policy.Allow, ""},
		{policy.ModeBypass, none, "edit(x)", `{"kind":"execute","rawInput":{"command":"eval $X"}}`, policy.Allow, ""},
		{policy.ModeBypass, none, "execute(rm *)", `{"kind":"execute","rawInput":{"command":"eval $X"}}`, policy.Ask, ""},
		{policy.ModeBypass, none, "edit(x)", `{"kind":"edit","rawInput":{"path":"a","path":"x"}}`, policy.Deny, "edit(x)"},
		{policy.ModeBypass, none, "edit(x)", `{"kind":"edit","rawInput":{"path":"x","path":"a"}}`, policy.Ask, ""},
	} {
		p := compile(t, policy.Config{Mode: tc.mode, Allow: words(tc.allow), Deny: words(tc.deny)})
		d := p.Decide(call(t, tc.call), policy.Scope{Cwd: cwd, AllowBypass: true})
		if d.Verdict != tc.want || d.Rule != tc.rule || d.Reason == "" || d.BypassRefused {
			t.Errorf("%s, mode %q, allow %q, deny %q: %+v, want %s by %q", tc.call, tc.mode, tc.allow, tc.deny, d, tc.want, tc.rule)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule, url string
		want      policy.Verdict
	}{
		{"fetch(https://example.org/*)", "https://example.org/", policy.Allow},
		{"fetch(https://example.org/*)", "https://example.org", policy.Allow},
		{"fetch(https://example.org/*)", "HTTPS://EXAMPLE.ORG:443/a/b?c=d#e", policy.Allow},
		{"fetch(https://example.org/*)", "http://example.org/", policy.Ask},
		{"fetch(https://example.org/*)", "https://example.org@evil/", policy.Ask},
		{"fetch(https://example.org/*)", "https://example.org:x@evil/a", policy.Ask},
		{"fetch(https://example.org/*)", "https://user@example.org/a", policy.Ask},
		{"fetch(https://example.org/*)", "https://example.org.evil/", policy.Ask},
		{"fetch(https://example.org/*)", "https://example.org:8443/", policy.Ask},
		{"fetch(https://example.org/*)", "https://evil/https://example.org/", policy.Ask},
		{"fetch(https://example.org/*)", `https://example.org\@evil/`, policy.Ask},
		{"fetch(https://example.org/*)", `https://evil\.example.org/`, policy.Ask},
		{"fetch(https://example.org/*)", "https://exаmple.org/", policy.Ask}, // a Cyrillic letter
		{"fetch(https://example.org/*)", "https://example.org\t/", policy.Ask},
		{"fetch(https://example.org/*)", "//example.org/", policy.Ask},
		{"fetch(https://example.org/*)", "example.org/", policy.Ask},
		{"fetch(https://example.org/*)", "https:example.org/", policy.Ask},
		{"fetch(https://example.org/*)", "javascript:x//example.org/", policy.Ask},
		{"fetch(https://example.org/a/*)", "https://example.org/a/../b", policy.Ask},
		{"fetch(https://example.org/a/*)", "https://example.org/a/%2e%2e/b", policy.Ask},
		{"fetch(https://example.org/a/*)", "https://example.org/a/%2e%2e%2fb", policy.Ask},
		{"fetch(https://example.org/a/*)", "https://example.org/a/b/../c", policy.Allow},
		{"fetch(https://example.org)", "https://example.org/", policy.Allow},
		{"fetch(https://example.org)", "https://example.org/a", policy.Ask},
		{"fetch(https://example.org:8443/*)", "https://example.org:8443/a", policy.Allow},
		{"fetch(https://*.example.org/*)", "https://a.b.example.org/a", policy.Allow},
		{"fetch(https://*.example.org/*)", "https://example.org/a", policy.Ask},
		{"fetch(https://*.example.org/*)", "https://.example.org/a", policy.Ask},
		{"fetch(https://*.example.org/*)", "https://evilexample.org/a", policy.Ask},
		{"fetch(https://*.example.org/*)", "https://evil/.example.org/a", policy.Ask},
		{"fetch(*://*/*)", "ftp://a/b", policy.Allow},
		{"fetch(http://[::1]:80/*)", "http://[::1]/a", policy.Allow},
		{"fetch(https://example.org/?q=*)", "https://example.org/?q=x", policy.Allow},
	} {
		p := compile(t, policy.Config{Allow: []string{tc.rule}})
		if d := p.Decide(policy.Call{Kind: "fetch", URLs: []string{tc.url}}, policy.Scope{Cwd: cwd}); d.Verdict != tc.want {
			t.Errorf("%s with %s: %s %q", tc.url, tc.rule, d.Verdict, d.Reason)
		}
	}
	p := compile(t, policy.Config{Deny: []string{"fetch(*://example.org/*)"}})
	for _, u := range []string{"https://example.org/a", "https://u@example.org/", "https://EXAMPLE.org./", "http://example.org:80"} {
		if d := p.Decide(policy.Call{Kind: "fetch", URLs: []string{u}}, policy.Scope{}); d.Verdict != policy.Deny {
			t.Errorf("%s: %s", u, d.Verdict)
		}
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	rule, err := policy.ParseRule("edit(src/**)")
	if err != nil {
		t.Fatal(err)
	}
	edit := policy.Call{Kind: "edit", Paths: []string{"src/a"}}
	s := policy.Scope{Cwd: cwd, Rules: []policy.Rule{rule}}
	if d := compile(t, policy.Config{Mode: policy.ModeDontAsk}).Decide(edit, s); d.Verdict != policy.Allow || d.Rule != "edit(src/**)" {
		t.Errorf("a session rule: %+v", d)
	}
	if d := compile(t, policy.Config{Deny: []string{"edit"}}).Decide(edit, s); d.Verdict != policy.Deny {
		t.Errorf("deny is over a session rule: %+v", d)
	}
	s = policy.Scope{Cwd: cwd, Mode: policy.ModeAcceptEdits}
	if d := compile(t, policy.Config{Mode: policy.ModePlan}).Decide(edit, s); d.Verdict != policy.Allow {
		t.Errorf("the session's mode: %+v", d)
	}
	if d := compile(t, policy.Config{Mode: policy.ModeBypass}).Decide(edit, policy.Scope{Cwd: cwd}); d.Verdict != policy.Ask || !d.BypassRefused {
		t.Errorf("bypass that isn't permitted: %+v", d)
	}
	if d := compile(t, policy.Config{Mode: policy.ModeAcceptEdits}).Decide(edit, policy.Scope{}); d.Verdict != policy.Ask {
		t.Errorf("no directory: %+v", d)
	}
	if d := new(policy.Policy).Decide(edit, policy.Scope{}); d.Verdict != policy.Ask {
		t.Errorf("the zero policy: %+v", d)
	}
}

func TestRuleErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                            `rule "", at 0: is empty`,
		"(x)":                         `rule "(x)", at 0: must begin with a kind or a tool, such as execute or edit`,
		"*":                           `rule "*", at 0: must begin with a kind or a tool, such as execute or edit`,
		"git status":                  `rule "git status", at 3: the name of a kind or tool can't hold ' '`,
		"edit()":                      `rule "edit()", at 5: the pattern is empty; without parentheses the rule means every call`,
		"edit(x":                      `rule "edit(x", at 6: the closing parenthesis is missing`,
		"edit(x) y":                   `rule "edit(x) y", at 7: nothing may follow the closing parenthesis`,
		`edit(x\)`:                    `rule "edit(x\\)", at 6: a '\' takes the meaning of the character behind it: the closing parenthesis is missing`,
		"edit(src/../x)":              `rule "edit(src/../x)", at 9: '..' never matches: paths are cleaned first; write the whole path`,
		"fetch(example.org)":          `rule "fetch(example.org)", at 6: must be a URL such as https://example.org/*`,
		"fetch(https://example.org*)": `rule "fetch(https://example.org*)", at 25: the host is a name, *.name for all below it, or *`,
		"fetch(https://u@x/)":         `rule "fetch(https://u@x/)", at 15: the host is a name, *.name for all below it, or *`,
		"fetch(h*s://x/)":             `rule "fetch(h*s://x/)", at 6: the scheme is a word such as https, or *`,
		"execute(a\u202eb)":           "rule \"execute(a\\u202eb)\", at 9: a rule can't hold the character U+202E",
		"execute(a\nb)":               `rule "execute(a\nb)", at 9: a rule can't hold the character U+000A`,
		"execute(\xff)":               `rule "execute(\xff)", at 0: is no valid UTF-8`,
	} {
		_, err := policy.ParseRule(text)
		if _, ok := errors.AsType[*policy.RuleError](err); !ok || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
	for _, text := range []string{"read", "execute(echo (x))", "mcp__a__*", "a.b:c/d-e(x)", `execute(a\\)`, "execute(find . -name '*.go')"} {
		if r, err := policy.ParseRule(text); err != nil || r.String() != text {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := policy.Compile(policy.Config{Mode: "plna", Allow: []string{"read", "edit("}, Deny: []string{"x("}})
	all, ok := errors.AsType[*policy.Errors](err)
	if !ok || len(all.List) != 3 || all.List[0].List != "mode" || all.List[1].Index != 1 || all.List[1].List != "allow" || all.List[2].List != "deny" {
		t.Fatalf("all at once: %v", err)
	}
	if !strings.HasPrefix(err.Error(), "the mode must be one of default, plan, accept_edits, dont_ask, bypass, not \"plna\"\nrule \"edit(\", at 5") {
		t.Error(err)
	}
}
