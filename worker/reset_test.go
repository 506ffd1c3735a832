package worker

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// agent is the record of the agent's session, zero when there is none.
func (s *session) agent() subjects.SessionAgent {
	s.f.t.Helper()
	var a subjects.SessionAgent
	_, err := s.f.b.GetJSON(s.f.t.Context(), s.f.f.SessionsBucket(), subjects.AgentKey(s.meta.Principal, s.meta.Session), &a)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		s.f.t.Fatal(err)
	}
	return a
}

// What runs goes on in the agent's session that is forgotten, and the next prompt, which
// waits already, starts in a new one.
func TestReset(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) { c.Raiders[0].Command = append(c.Raiders[0].Command, "load") })
	s := f.session(slot("1bjorn"))
	running := s.prompt("note first; wait %s; note first", f.path("go"))
	next, _ := s.store("note second")
	pid := f.noted("first", 1)
	if s.agent().InnerID == "" {
		t.Fatal("the agent's session is not noted")
	}
	// Of another session of the slot: nothing happens.
	other := f.session(slot("1bjorn"))
	if r := other.control(subjects.ControlRequest{Op: subjects.ControlReset}); r.Error != "" || s.agent().InnerID == "" {
		t.Errorf("another session's: %+v", r)
	}
	if r := s.control(subjects.ControlRequest{Op: subjects.ControlReset}); r.Error != "" {
		t.Errorf("reset: %+v", r)
	}
	if a := s.agent(); a.InnerID != "" {
		t.Errorf("the agent's session is still noted: %+v", a)
	}
	f.touch("go")
	f.want(running, subjects.RunCompleted, "", 10*time.Second)
	f.want(next, subjects.RunCompleted, "", 10*time.Second)
	if lines := f.notes("first"); len(lines) != 2 || lines[0] != lines[1] {
		t.Errorf("the running one: %q", lines)
	}
	if second := f.noted("second", 1); second == pid {
		t.Error("the next prompt ran in the old process")
	}
	// An idle process goes at once.
	pid = f.noted("second", 1)
	natstest.Eventually(t, 10*time.Second, "a warm lane", func() (bool, any) {
		lane := w.owned(s.meta.Lane)
		if lane == nil {
			return false, "none"
		}
		idle, _, _ := lane.idleSince()
		return idle, lane.status()
	})
	if r := s.control(subjects.ControlRequest{Op: subjects.ControlReset}); r.Error != "" {
		t.Errorf("reset: %+v", r)
	}
	f.gone(pid, 10*time.Second)
}

// A reset that comes while the session is being opened is not lost.
func TestResetWhileOpening(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	p := s.prompt("wait %s", f.path("go"))
	natstest.Eventually(t, 10*time.Second, "the agent's session", func() (bool, any) { return s.agent().InnerID != "", s.agent() })
	if r := s.control(subjects.ControlRequest{Op: subjects.ControlReset}); r.Error != "" {
		t.Errorf("reset: %+v", r)
	}
	f.touch("go")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
	if a := s.agent(); a.InnerID != "" {
		t.Errorf("noted again: %+v", a)
	}
}

// Asks, what decided them, and the process of each run are told.
func TestAsksAndProcessesAreTold(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	told := f.watch(f.f.FleetEventAll(), nil)
	w := f.run(nil)
	s := f.session(slot("1bjorn"))
	s.attach("a1")
	p := s.prompt("ask")
	find := func(kind subjects.FleetEventKind, p subjects.PromptID) (e subjects.FleetEvent) {
		t.Helper()
		natstest.Eventually(t, 10*time.Second, string(kind), func() (bool, any) {
			i := slices.IndexFunc(told.all(), func(x watched) bool {
				return json.Unmarshal([]byte(x.body), &e) == nil && e.Kind == kind && e.Prompt == p
			})
			return i >= 0, len(told.all())
		})
		return e
	}
	asked := find(subjects.RaiderAsked, p)
	if asked.Ask == "" || asked.Session != s.meta.Session || asked.Lane != s.meta.Lane || asked.Instance != w.Instance() {
		t.Errorf("asked: %+v", asked)
	}
	s.answer(asked.Ask, yes, "a1")
	if e := find(subjects.RaiderAnswered, p); e.Ask != asked.Ask || e.Why != "answered" || e.By != "a1" {
		t.Errorf("answered: %+v", e)
	}
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
	cold := find(subjects.RaiderSpawned, p)
	warm := find(subjects.RaiderSpawned, s.prompt("say x"))
	if cold.Warm || !warm.Warm || cold.PID == 0 || cold.PID != warm.PID || cold.Host == "" || cold.Binding != "slot:1bjorn" {
		t.Errorf("spawned: %+v, then %+v", cold, warm)
	}
	if e := find(subjects.RaiderDone, s.prompt("error the disk is full")); e.Error != "the disk is full" || e.Outcome != subjects.RunFailed {
		t.Errorf("done: %+v", e)
	}
	if e := find(subjects.RaiderDone, p); e.StopReason != "end_turn" {
		t.Errorf("done: %+v", e)
	}
}

// A line of stderr names the prompt that was run when it came, or before.
func TestLogLinesNameTheirPrompt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	prompts := []subjects.PromptID{s.prompt("stderr one"), s.prompt("stderr two")}
	for i, p := range prompts {
		f.want(p, subjects.RunCompleted, "", 10*time.Second)
		var last bus.Message
		natstest.Eventually(t, 10*time.Second, "its line", func() (bool, any) {
			var err error
			last, err = f.b.Next(t.Context(), f.f.LogsStream(), f.f.LogSession(s.meta.Session), last.Seq+1)
			return err == nil, err
		})
		if i == 0 && (string(last.Data) != "one" || last.Header.Get(subjects.HeaderPrompt) != string(p) || last.Time.IsZero()) {
			t.Errorf("line %q of %v", last.Data, last.Header)
		}
	}
	all, err := f.b.Last(t.Context(), f.f.LogsStream(), f.f.LogSession(s.meta.Session))
	if err != nil || !strings.Contains(string(all.Data), "two") || all.Header.Get(subjects.HeaderPrompt) != string(prompts[1]) {
		t.Errorf("the last line is %q of %v, %v", all.Data, all.Header, err)
	}
}
