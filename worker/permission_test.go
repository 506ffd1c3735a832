package worker

import (
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/policy"
	"raiderfleet/subjects"
)

func compiled(t *testing.T, c policy.Config) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// heard is what the raider was told to each of its questions of a run that needs nobody.
func (s *session) heard(script string) []string {
	s.f.t.Helper()
	before := len(s.said())
	p := s.prompt("%s", script)
	s.f.want(p, subjects.RunCompleted, "", 20*time.Second)
	return s.said()[before:]
}

func selected(option, reason string) string {
	text := `{"outcome":{"outcome":"selected","optionId":"` + option + `"}`
	if reason != "" {
		text += `,"_meta":{"raiderfleet/reason":"` + reason + `"}`
	}
	return text + "}"
}

// The raider's policy answers before anybody is asked: deny over allow, and every command
// of a line must be allowed.
func TestPolicyDecidesFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(func(c *Config) {
		c.Raiders[0].Policy = compiled(t, policy.Config{
			Mode: policy.ModeDontAsk, Allow: []string{"execute(git *)"}, Deny: []string{"execute(git push*)"},
		})
	})
	s := f.session(nil)
	nobody := "No rule allows this, and the mode dont_ask asks nobody."
	for command, want := range map[string]string{
		"git status":               selected("y", "The rule 'allow execute(git *)' allows this."),
		"git push origin":          selected("n", "The rule 'deny execute(git push*)' forbids this."),
		"git status && rm -rf x":   selected("n", nobody),
		"git status && git push":   selected("n", "The rule 'deny execute(git push*)' forbids this."),
		"make":                     selected("n", nobody),
		"git log | git --no-pager": selected("y", "The rule 'allow execute(git *)' allows this."),
	} {
		if got := s.heard("run " + command); len(got) != 1 || !strings.HasPrefix(got[0], strings.TrimSuffix(want, `"}}`)) {
			t.Errorf("%s: told %s, want %s", command, got, want)
		}
	}
	if kinds := s.kinds(); kinds[subjects.EventAsk] != 0 {
		t.Errorf("%d asks", kinds[subjects.EventAsk])
	}
}

// Bypass is the worker's to permit: without it people are asked.
func TestBypassNeedsTheWorker(t *testing.T) {
	t.Parallel()
	for _, permitted := range []bool{true, false} {
		f := newFleet(t, 2*time.Second)
		f.run(func(c *Config) {
			c.AllowBypass = permitted
			c.Raiders[0].Policy = compiled(t, policy.Config{Mode: policy.ModeBypass})
		})
		s := f.session(nil)
		s.attach("a1")
		p := s.prompt("run make")
		if !permitted {
			a := s.asked()
			s.answer(a.Ask, `{"outcome":"selected","optionId":"n"}`, "a1")
		}
		f.want(p, subjects.RunCompleted, "", 20*time.Second)
		want := selected("n", "")
		if permitted {
			want = selected("y", "The mode bypass allows what no rule denies.")
		}
		if said := s.said(); len(said) != 1 || said[0] != want {
			t.Errorf("permitted %t: told %s, want %s", permitted, said, want)
		}
	}
}

// 'Allow always' makes a rule of the session: it holds for that session only, for calls
// that it names, on another worker too, and ends with nothing but the session.
func TestAllowAlwaysHoldsForTheSession(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	first := f.run(func(c *Config) { c.Name = "first" })
	s, other := f.session(nil), f.session(nil)
	s.attach("a1")
	other.attach("a1")
	p := s.prompt("run make all; run make all")
	s.answer(s.asked().Ask, `{"outcome":"selected","optionId":"a"}`, "a1")
	f.want(p, subjects.RunCompleted, "", 20*time.Second)
	rule := selected("y", "The rule 'allow execute(make all)' allows this.")
	if said := s.said(); len(said) != 2 || said[0] != selected("a", "") || said[1] != rule {
		t.Fatalf("told %s", said)
	}
	first.stop()
	<-first.ended
	f.run(func(c *Config) { c.Name = "second" })
	if got := s.heard("run make all"); len(got) != 1 || got[0] != rule {
		t.Errorf("on another worker: told %s", got)
	}
	for _, x := range []struct {
		s      *session
		script string
	}{{s, "run make all install"}, {other, "run make all"}} {
		asks := x.s.kinds()[subjects.EventAsk]
		p := x.s.prompt("%s", x.script)
		natstest.Eventually(t, 10*time.Second, "asked", func() (bool, any) { n := x.s.kinds()[subjects.EventAsk]; return n == asks+1, n })
		x.s.answer(x.s.asked().Ask, `{"outcome":"selected","optionId":"n"}`, "a1")
		f.want(p, subjects.RunCompleted, "", 20*time.Second)
	}
}
