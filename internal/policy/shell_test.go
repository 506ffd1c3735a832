package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/policy"
)

const cwd = "/work/project"

func compile(t *testing.T, c policy.Config) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func call(t *testing.T, text string) policy.Call {
	t.Helper()
	c, err := policy.ParseCall(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func shell(line string) policy.Call { return policy.Call{Kind: "execute", Commands: []string{line}} }

// words reads `a; b` as a list of rules.
func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, " ;; ")
}

func TestLinesThatAreAllowed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ allow, line string }{
		{"execute(git status*)", "git status"},
		{"execute(git status*)", "git   status\t-s"},
		{"execute(git status*)", "git status -- 'a b'"},
		{"execute(git status*)", `"git" status`},
		{"execute(git status*)", `g''it "sta"tus`},
		{"execute(git status*)", `g\it status`},
		{"execute(git status*)", "git sta\\\ntus"},
		{"execute(git status*)", "git status # rm -rf x"},
		{"execute(git status*)", "git status; git status -s\ngit status && git status || git status | git status &"},
		{"execute(git status*)", "! git status"},
		{"execute(git status*)", "(git status); { git status; }"},
		{"execute(git status*)", "if git status; then git status; else git status; fi"},
		{"execute(git status*)", "while git status; do git status; done"},
		{"execute(git status*)", "case x in a) git status;; esac"},
		{"execute(git status*)", "git status $(git status) `git status` <(git status)"},
		{"execute(git status*)", `git status "$(git status)"`},
		{"execute(git status*)", "git status $X ${Y:-z} *.go"},
		{"execute(git status*)", "git status 2>&1 >/dev/null 2>/dev/null"},
		{"execute(git status*)", "git status <in"},
		{"execute(git status*)", "bash -lc 'git status'"},
		{"execute(git status*)", "sh -c 'git status && git status'"},
		{"bash(git status*)", "git status"},
		{"Bash(git status*)", "git status"},
		{"execute(git status)", "git status"},
		{"execute", "rm -rf /"},
		{"execute(cat *) ;; execute(wc *)", "cat a | wc -l"},
		{"execute(cat*)", "cat <<EOF\ntext\nEOF"},
		{"execute(cat*)", "cat <<'EOF'\n$(rm x)\nEOF"},
		{"execute(echo*) ;; edit(out/**)", "echo x > out/a.txt"},
		{"execute(echo*) ;; edit(/tmp/*)", "echo x >>/tmp/a"},
		{`execute(git commit -m fix\ it)`, `git commit -m "fix it"`},
		{"execute(git commit -m *)", "git commit -m 'a\nb'"},
		{"execute(for*) ;; execute(cat *)", "for f in a b; do cat $f; done"},
		{"execute(bash build.sh*)", "bash build.sh -x"},
		{"execute(find . -name *)", "find . -name '*.go'"},
		{"execute(*)", "git log"},
		{`execute(ls \*)`, `ls '*'`},
		{"execute(ls *.go)", "ls *.go"},
		{"execute(cd *) ;; execute(git status*)", "cd sub && git status"},
		{"execute(/usr/bin/git status)", "/usr/bin/git status"},
		{"execute(git log*)", "git log --oneline -n 3 --output-indicator-new=+ -- --output=x $X"},
		{"execute(git diff*)", "git diff -Oorder HEAD~1"},
		{"execute(git grep*)", "git grep -n Output"},
		{"execute(git fetch*)", "git fetch --update-shallow origin"},
		{"execute(git rebase*)", "git rebase --continue"},
		{"execute(git bisect*)", "git bisect good"},
		{"execute(rg *)", "rg --pretty -n --pre-glob=a b"},
		{"execute(sort*)", "sort -rn --key=2 out"},
	} {
		p := compile(t, policy.Config{Allow: words(tc.allow)})
		if d := p.Decide(shell(tc.line), policy.Scope{Cwd: cwd}); d.Verdict != policy.Allow {
			t.Errorf("%s with %s: %s %q", tc.line, tc.allow, d.Verdict, d.Reason)
		}
	}
}

func TestLinesThatNoRuleAllows(t *testing.T) {
	t.Parallel()
	const git, all = "execute(git status*)", "execute(*) ;; execute"
	for _, tc := range []struct{ allow, line string }{
		{git, "git status && rm -rf x"},
		{git, "git status; rm x"},
		{git, "git status\nrm x"},
		{git, "git status & rm x"},
		{git, "git status | rm x"},
		{git, "git status |& rm x"},
		{git, "git status || rm x"},
		{git, "git status $(rm -rf x)"},
		{git, "git status `rm -rf x`"},
		{git, `git status "$(rm -rf x)"`},
		{git, `git status "${X:-$(rm x)}"`},
		{git, "git status <(rm x)"},
		{git, "git status > >(rm x)"},
		{git, "git status <<EOF\n$(rm x)\nEOF"},
		{git, "git status <<< $(rm x)"},
		{git, "git status > /etc/passwd"},
		{git, "git status >> ~/.bashrc"},
		{git, "git status >| x"},
		{git, "git status &> x"},
		{git, "git status >& x"},
		{git, "git status 2>x"},
		{git, "git status <>x"},
		{git, "git status >$X"},
		{git, "git status {fd}>x"},
		{git, "git status </dev/tcp/evil/80"},
		{git, "> x"},
		{git, "PATH=/evil git status"},
		{git, "PATH=/evil; git status"},
		{git, "GIT_PAGER=x git status"},
		{git, "export PATH=/evil; git status"},
		{git, "declare -x PATH=/evil; git status"},
		{git, "for PATH in /evil; do git status; done"},
		{git, "for path in /evil; do git status; done"},
		{git, "git -c alias.status='!rm x' status"},
		{git, "git push"},
		{git, "git --exec-path=/evil status"},
		{git, "gitstatus"},
		{git, "'git status'"},
		{git, "git' 'status"},
		{git, "/evil/git status"},
		{git, "./git status"},
		{git, "Git status"},
		{git, "ｇit status"},
		{git, "gіt status"}, // a Cyrillic letter
		{git, "git\u00a0status"},
		{git, "git status\u202e"},
		{git, "git status\r"},
		{git, "git status\x00"},
		{git, "git status \xff"},
		{git, "git() { rm x; }; git status"},
		{git, "function git { git status; }"},
		{git, "alias git=rm; git status"},
		{git, "$CMD status"},
		{git, "git $X"},
		{git, "g$X status"},
		{git, "git {status,push}"},
		{git, "$(echo git) status"},
		{git, "eval git status"},
		{git, "env git status"},
		{git, "time git status"},
		{git, "coproc git status"},
		{git, "git status $((a[$(rm x)]))"},
		{git, "git status ${x[$(rm x)]}"},
		{git, "git status ${X:=y}"},
		{git, "git status ${X@P}"},
		{git, "git status ${!X}"},
		{git, "[[ -f x ]] && git status"},
		{git, "((x=1)); git status"},
		{git, "git status 'unclosed"},
		{git, "git status )"},
		{git, ""},
		{git, "# git status"},
		{git, "git status # \\\nrm x"},
		{"execute(git*)", "git <<E\nx\n\\\nE\ngit <>x\n\nE\n"},
		{"execute(git*)", "git <<E\nx\n\\\nE\nrm x\nE\n"},
		{git, "git status # git\\\n rm x"},
		{git, "bash -lc 'git status; rm x'"},
		{git, `bash -c "$X"`},
		{git, "bash -c 'git status' rm"},
		{git, "bash"},
		{git, "git status | bash"},
		{git, "git status; exit"},
		{git, strings.Repeat("git status;", 5000)},
		{git, strings.Repeat("(", 30000)},
		{git, "sh -c \"sh -c \\\"sh -c 'sh -c \\\\\\\"sh -c a\\\\\\\"'\\\"\""},
		// Whoever allows every command still isn't taken to allow what isn't known.
		{all, "$CMD x"},
		{all, "eval x"},
		{all, "env X=1 rm"},
		{all, "sudo rm x"},
		{all, "xargs rm"},
		{all, "command rm x"},
		{all, "exec rm x"},
		{all, "nohup rm x"},
		{all, "timeout 5 rm x"},
		{all, "nice -n 5 rm x"},
		{all, "/usr/bin/env rm"},
		{all, `\env rm`},
		{all, "e''nv rm"},
		{all, "ENV rm"},
		{all, "busybox rm x"},
		{all, "find . -exec rm {} ;"},
		{all, "find . -delete"},
		{all, "find . $X"},
		{all, "for f in -delete; do find . $f; done"},
		{all, "git -c core.pager='rm x' log"},
		{all, "git -ccore.pager=x log"},
		{all, "git --config-env=a=b log"},
		{all, "git $X log"},
		{all, "git log --output=/etc/passwd"},
		{all, "git -C . log --outp /etc/passwd"},
		{all, "git diff --output x"},
		{all, "git show '--output=x'"},
		{all, "git log $X"},
		{all, "git log --$X"},
		{all, "for f in --output=x; do git log $f; done"},
		{all, "git log *"},
		{all, "git log --ext-diff"},
		{all, "git grep -O'rm x' y"},
		{all, "git grep -nO'rm x' y"},
		{all, "git grep --open-files-in-pager=rm y"},
		{all, "git archive -o x HEAD"},
		{all, "git ls-remote --upload-pack='rm x' y"},
		{all, "git fetch --upload-pa 'rm x' y"},
		{all, "git clone -u 'rm x' y"},
		{all, "git push --receive-pack='rm x' y"},
		{all, "git rebase --exec 'rm x' y"},
		{all, "git rebase -ix 'rm x' y"},
		{all, "git submodule foreach 'rm x'"},
		{all, "git submodule --quiet foreach 'rm x'"},
		{all, "git bisect run rm x"},
		{all, "git bisect $X rm x"},
		{all, "git filter-branch --tree-filter 'rm x'"},
		{all, "git difftool -x rm"},
		{all, "rg --pre=rm x"},
		{all, "rg --pre rm x"},
		{all, "sort -o x y"},
		{all, "sort -ro x y"},
		{all, "sort --o=x y"},
		{all, "sort --compress-program=rm y"},
		{all, "fakeroot rm x"},
		{all, "tmux new rm x"},
		{all, "valgrind rm x"},
		{all, "run-parts x"},
		{all, "osh -c 'rm x'"},
		{all, "yash -c \"$x\""},
		{all, "read PATH"},
		{all, "unset 'a[$(rm x)]'"},
		{all, "printf -v 'a[$(rm x)]' x"},
		{all, "[ -v 'a[$(rm x)]' ]"},
		{all, "trap 'rm x' EXIT"},
		{all, ". ./x"},
		{all, "source x"},
		{all, "sh -c \"$x\""},
		{all, "fish -c x"},
		{all, "$'\\x72m' x"},
		{all, "ls ?(a|b)"},
		{all, "ls > x"},
		{all + " ;; edit(out/**)", "cd .. && ls > out/x"},
		{all + " ;; edit(out/**)", "ls > out/../../x"},
		{all + " ;; edit(out/**)", "ls > out/$X"},
		{all + " ;; edit(out/*)", "ls > out/a/b"},
	} {
		p := compile(t, policy.Config{Allow: words(tc.allow)})
		if d := p.Decide(shell(tc.line), policy.Scope{Cwd: cwd}); d.Verdict != policy.Ask {
			t.Errorf("%.80q with %s: %s %q", tc.line, tc.allow, d.Verdict, d.Reason)
		}
	}
}

// A model writes the lines: none may make the decision slow.
func TestLongLines(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Config{Mode: policy.ModeBypass, Allow: []string{"execute(*a*b*c*d)"}, Deny: []string{"execute(*x*y*z*)"}})
	for _, line := range []string{
		"env " + strings.Repeat("'a b' ", 5000), "eval eval eval eval " + strings.Repeat("'x y' ", 4000), "ls " + strings.Repeat("a", 32000),
		strings.Repeat("ls|", 10000) + "ls", strings.Repeat("$(", 10000), strings.Repeat("sudo ", 6000), strings.Repeat("\"$(ls ", 4000),
	} {
		begin := time.Now()
		d := p.Decide(shell(line), policy.Scope{Cwd: cwd, AllowBypass: true})
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%.40q: %s after %s", line, d.Verdict, took)
		}
	}
}

func TestLinesThatAreDenied(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ deny, line string }{
		{"execute(rm *)", "rm -rf x"},
		{"execute(rm *)", "  rm   -rf x"},
		{"execute(rm *)", "git status && rm -rf x"},
		{"execute(rm *)", "git status $(rm x)"},
		{"execute(rm *)", "f() { rm x; }"},
		{"execute(rm *)", "cat <<EOF\n$(rm x)\nEOF"},
		{"execute(rm *)", "cat < <(rm x)"},
		{"execute(rm *)", "[[ $(rm x) ]]"},
		{"execute(rm *)", "X=$(rm x)"},
		{"execute(rm *)", "declare X=$(rm x)"},
		{"execute(rm *)", "/bin/rm x"},
		{"execute(rm *)", `\rm x`},
		{"execute(rm *)", `r''m "x"`},
		{"execute(rm *)", "RM x"},
		{"execute(rm *)", "env X=1 rm x"},
		{"execute(rm *)", "sudo -u root rm x"},
		{"execute(rm *)", "X=1 rm x"},
		{"execute(rm *)", "git status # \\\nrm x"},
		{"execute(rm *)", "git <<E\n\\\nE\nrm x\nE\n"},
		{"execute(rm *)", "xargs -n 1 rm -f"},
		{"execute(rm *)", "find . -exec rm {} +"},
		{"execute(rm *)", "timeout 5 rm x"},
		{"execute(rm *)", "time rm x"},
		{"execute(rm *)", "fakeroot -- rm x"},
		{"execute(rm *)", "tmux new 'rm x'"},
		{"execute(rm *)", "nu -c 'rm x'"},
		{"execute(rm *)", "yash -c 'rm x'"},
		{"execute(rm *)", "git submodule foreach 'rm x'"},
		{"execute(rm *)", "git bisect run rm x"},
		{"execute(rm *)", "git rebase --exec 'rm x'"},
		{"execute(rm *)", "git rebase --exec='rm x'"},
		{"execute(rm *)", "git difftool --extcmd 'rm x'"},
		{"execute(rm *)", "$SUDO rm x"},
		{"execute(rm *)", "eval 'rm x'"},
		{"execute(rm *)", "eval rm x"},
		{"execute(rm *)", "sh -c 'rm x'"},
		{"execute(rm *)", "sh -c 'echo; rm x' y"},
		{"execute(rm *)", "sudo sh -c 'rm x'"},
		{"execute(rm *)", "trap 'rm x' EXIT"},
		{"execute(rm *)", "bash -lc \"git status; rm x\""},
		{"execute(rm *)", "rm x 'unclosed"},
		{"execute(rm *)", "echo ) ; rm x"},
		{"execute(rm *)", "rm 'a b'"},
		{"execute(rm a b)", "rm 'a b'"},
		{"execute(rm*)", "rm"},
		{"execute(git push*)", "git -C x push"},
		{"execute(git push*)", "git --no-pager -c a=b push"},
		{"execute(git push*)", "git $X push"},
		{"execute", "ls"},
		{"bash", "ls"},
		{"edit(/etc/**)", "ls > /etc/passwd"},
		{"edit(/etc/**)", "$X > /etc/passwd"},
		{"edit(src/**)", "ls > SRC/x"},
		{"read(**/.env)", "cat < sub/.env"},
		{"read(**/.env)", "cat < ../other/.env"},
	} {
		for _, mode := range []policy.Mode{policy.ModeDefault, policy.ModeBypass} {
			p := compile(t, policy.Config{Mode: mode, Allow: []string{"execute", "execute(*)", "edit", "read"}, Deny: []string{tc.deny}})
			if d := p.Decide(shell(tc.line), policy.Scope{Cwd: cwd, AllowBypass: true}); d.Verdict != policy.Deny || d.Rule != tc.deny {
				t.Errorf("%q with %s: %s %q", tc.line, tc.deny, d.Verdict, d.Reason)
			}
		}
	}
}
