package worker

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func TestStartFailures(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	f.run(func(c *Config) {
		c.Raiders = []Raider{
			{Name: "missing", Command: []string{"/nowhere/agent"}},
			{Name: "nopath", Command: []string{"no-such-agent-anywhere"}},
			{Name: "exits", Command: raiderCommand(t, "exit")},
			{Name: "banner", Command: raiderCommand(t, "banner")},
			{Name: "nocwd", Command: raiderCommand(t), Cwd: "/nowhere"},
			{Name: "good", Command: raiderCommand(t)},
		}
	})
	for _, x := range []struct {
		raider, cwd string
		state       subjects.RunState
		texts       []string
	}{
		{"missing", "", subjects.RunFailed, []string{"missing", "/nowhere/agent"}},
		{"nopath", "", subjects.RunFailed, []string{"nopath", "no-such-agent-anywhere"}},
		{"exits", "", subjects.RunFailed, []string{"exit code 3", "no licence found"}},
		{"banner", "", subjects.RunCompleted, []string{""}},
		{"nocwd", "", subjects.RunRefused, []string{"/nowhere does not exist on worker w"}},
		{"good", "/nowhere/else", subjects.RunRefused, []string{"/nowhere/else does not exist on worker w"}},
	} {
		s := f.session(func(m *subjects.SessionMeta) {
			m.Raider = subjects.Raider(x.raider)
			if x.cwd != "" {
				m.Cwd = x.cwd
			}
		})
		p := s.prompt("say hello")
		for _, text := range x.texts {
			f.want(p, x.state, text, 10*time.Second)
		}
		// The lane goes on: its next prompt ends the same way.
		f.want(s.prompt("say hello"), x.state, x.texts[0], 10*time.Second)
	}
}

func TestARaiderKilledInMidTurnFailsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	f.run(nil)
	s := f.session(nil)
	p := s.prompt("note pid; say begun; stderr first line; stderr last words; note said; wait %s", f.path("never"))
	pid := f.noted("pid", 1)
	f.noted("said", 1)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r := f.want(p, subjects.RunFailed, "killed by signal 9", 5*time.Second)
	if took := time.Since(begin); took > time.Second {
		t.Fatalf("the run ended %v after its raider", took)
	}
	if text := r.Outcome.Error.Message; !strings.Contains(text, "first line\nlast words") {
		t.Fatalf("without its last words: %q", text)
	}
	// What it wrote in an earlier turn is not said of a later one's end.
	f.want(s.prompt("stderr of the first turn"), subjects.RunCompleted, "", 10*time.Second)
	natstest.Eventually(t, 10*time.Second, "the line has been read", func() (bool, any) {
		m, err := f.b.Last(t.Context(), f.f.LogsStream(), f.f.LogSession(s.meta.Session))
		return err == nil && string(m.Data) == "of the first turn", string(m.Data)
	})
	r = f.want(s.prompt("stderr of the second; note fell; kill"), subjects.RunFailed, "of the second", 10*time.Second)
	if text := r.Outcome.Error.Message; strings.Contains(text, "of the first") {
		t.Fatalf("with another turn's words: %q", text)
	}
	// The next prompt has a new one.
	f.want(s.prompt("say hello"), subjects.RunCompleted, "", 10*time.Second)
}

func TestARaiderKilledBetweenTurnsIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(nil)
	s := f.session(nil)
	for i := range 3 {
		f.want(s.prompt("note pid"), subjects.RunCompleted, "", 10*time.Second)
		pid := f.noted("pid", i+1)
		l := s.warm(w)
		l.mu.Lock()
		exited := l.proc.sp.Exited()
		l.mu.Unlock()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// A prompt that is handed over before the end is seen fails, as in mid-turn.
		<-exited
	}
}

func TestARaiderGetsNothingOfTheWorkersButWhatIsNamed(t *testing.T) {
	// No t.Parallel: the environment is the process's.
	t.Setenv("RF_TEST_PLANTED", "planted-secret-1")
	t.Setenv("RF_TEST_PASSED", "passed-secret-2")
	t.Setenv("no_proxy", "intranet.example")
	f := newFleet(t, 5*time.Second)
	f.run(func(c *Config) {
		c.Raiders[0].Env = map[string]string{"RF_TEST_SET": "set-secret-3"}
		c.Raiders[0].PassEnv = []string{"RF_TEST_PASSED", "RF_TEST_UNSET"}
	})
	s := f.session(nil)
	f.want(s.prompt("sayenv RF_TEST_PLANTED; sayenv RF_TEST_PASSED; sayenv RF_TEST_SET; sayenv RF_TEST_UNSET; sayenv no_proxy; sayenv PATH"), subjects.RunCompleted, "", 10*time.Second)
	said := s.said()
	for i, want := range []string{
		"RF_TEST_PLANTED= false", "RF_TEST_PASSED=passed-secret-2 true", "RF_TEST_SET=set-secret-3 true", "RF_TEST_UNSET= false",
		"no_proxy=intranet.example true",
	} {
		if said[i] != want {
			t.Errorf("raider has %s, want %s", said[i], want)
		}
	}
	if !strings.HasSuffix(said[5], " true") {
		t.Errorf("raider has no PATH: %s", said[5])
	}
	// What it says at its end is shown without the secrets, and so is its error.
	r := f.want(s.prompt("stderr key passed-secret-2 or set-secret-3; kill"), subjects.RunFailed, "key [RF_TEST_PASSED] or [RF_TEST_SET]", 10*time.Second)
	if strings.Contains(r.Outcome.Error.Message, "secret") {
		t.Fatalf("error text: %s", r.Outcome.Error.Message)
	}
	f.want(s.prompt("error bad key passed-secret-2"), subjects.RunFailed, "bad key [RF_TEST_PASSED]", 10*time.Second)
	// Neither in the stored logs.
	m, err := f.b.Last(t.Context(), f.f.LogsStream(), f.f.LogSession(s.meta.Session))
	if err != nil || strings.Contains(string(m.Data), "secret") {
		t.Fatalf("log %q, error %v", m.Data, err)
	}
}
