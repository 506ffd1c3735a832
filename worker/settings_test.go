package worker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/settings"
	"raiderfleet/subjects"
)

// set asks the lane's owner to choose something.
func (s *session) set(call, method, params string) subjects.ControlReply {
	s.f.t.Helper()
	return s.control(subjects.ControlRequest{Op: subjects.ControlSet, Call: call, Method: method, Params: json.RawMessage(params), By: "fd a"})
}

func setMode(s *session, id string) subjects.ControlReply {
	s.f.t.Helper()
	return s.set(string(subjects.NewPrompt()), subjects.MethodSetMode, fmt.Sprintf(`{"sessionId":"ours","modeId":%q}`, id))
}

// wish notes a choice in the session's record, as a front door does.
func (s *session) wish(method, params string) {
	s.f.t.Helper()
	s.meta.Wished++
	s.meta.Wishes = append(s.meta.Wishes, subjects.Wish{N: s.meta.Wished, Method: method, Params: json.RawMessage(params)})
	s.save()
}

// told are the bodies of the session's events of a kind.
func told[T any](s *session, kind subjects.EventKind) []T {
	s.f.t.Helper()
	var all []T
	for _, e := range s.events() {
		if e.Kind != kind {
			continue
		}
		var body T
		if err := json.Unmarshal(e.Body, &body); err != nil {
			s.f.t.Fatal(err)
		}
		all = append(all, body)
	}
	return all
}

func (f *fleet) moded(more ...string) *testWorker {
	f.t.Helper()
	return f.run(func(c *Config) {
		c.Raiders[0].Command = raiderCommand(f.t, append([]string{"modes", "setnote", f.path("sets")}, more...)...)
	})
}

// What the agent offers is noted raw, and told to the fleet.
func TestSettingsAreNotedRaw(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.moded()
	s := f.session(nil)
	f.want(s.prompt("mode plan; commands dance; say x"), subjects.RunCompleted, "", 10*time.Second)
	a := s.agent()
	if settings.Mode(a.Settings) != "plan" || !strings.Contains(string(a.Settings.Modes), `"_meta":{"n":1.0}`) ||
		!strings.Contains(string(a.Settings.Options), `"new":1e400`) || !strings.Contains(string(a.Commands), `{"name":"dance","description":"d","n":1.0}`) {
		t.Errorf("noted: %s %s %s", a.Settings.Modes, a.Settings.Options, a.Commands)
	}
	// Of the raider a new session's are told, not what was chosen since.
	if s := w.agents.all()[bjorn].Settings; settings.Mode(s) != "work" || len(s.Options) == 0 {
		t.Errorf("told of the raider: %s %s", s.Modes, s.Options)
	}
	if got := told[subjects.SettingsBody](s, subjects.EventSettings); len(got) != 1 || !got[0].First {
		t.Errorf("settings told %d times, %+v", len(got), got)
	}
}

// What an agent says in one write with its answer to session/new is newer than that.
func TestSettingsBehindTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	f.moded("behindnew")
	s := f.session(nil)
	f.want(s.prompt("say x"), subjects.RunCompleted, "", 10*time.Second)
	natstest.Eventually(t, 10*time.Second, "it is noted", func() (bool, any) {
		a := s.agent()
		return settings.Mode(a.Settings) == "plan" && strings.Contains(string(a.Commands), "early"), string(a.Settings.Modes) + string(a.Commands)
	})
}

// A live process is asked, once, and its own error comes back.
func TestALiveProcessIsSet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.moded()
	s := f.session(nil)
	f.want(s.prompt("say x"), subjects.RunCompleted, "", 10*time.Second)
	s.warm(w)
	for range 2 {
		if r := s.set("one", subjects.MethodSetMode, `{"sessionId":"ours","modeId":"plan"}`); string(r.Result) != "{}" || r.Error != "" || r.Fault != nil {
			t.Fatalf("set: %+v", r)
		}
	}
	r := s.set("two", subjects.MethodSetOption, `{"sessionId":"ours","configId":"model","value":"large"}`)
	if !strings.Contains(string(r.Result), `"id":"deep"`) || !strings.Contains(string(r.Result), `"new":1e400`) {
		t.Errorf("set: %s %+v", r.Result, r)
	}
	if r := setMode(s, "party"); r.Fault == nil || r.Fault.Code != -32602 || r.Fault.Message != "not here" || string(r.Fault.Data) != `{"asked":"party","n":1.0}` {
		t.Errorf("an unknown mode: %+v %+v", r, r.Fault)
	}
	if got := f.notes("sets"); !slices.Equal(got, []string{"plan", "large", "party"}) {
		t.Errorf("the agent was told %q", got)
	}
	if a := s.agent(); settings.Mode(a.Settings) != "plan" || !strings.Contains(string(a.Settings.Options), `"currentValue":"large"`) {
		t.Errorf("noted: %s %s", a.Settings.Modes, a.Settings.Options)
	}
	if got := told[subjects.SettingsBody](s, subjects.EventSettings); len(got) != 3 || got[2].Origin != "fd a" || got[2].First {
		t.Errorf("settings told: %+v", got)
	}
	// Nobody sets another principal's.
	if r := s.control(subjects.ControlRequest{Op: subjects.ControlSet, Principal: "stranger", Method: subjects.MethodSetMode, Params: json.RawMessage(`{"modeId":"work"}`)}); !r.Decided {
		t.Errorf("a stranger: %+v", r)
	}
}

// An agent that forgets is told again what was chosen, and by itself, when its process starts
// again: also when it can't load its session.
func TestChoicesSurviveTheProcess(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"loads": {"load"}, "can't load": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 3*time.Second)
			w := f.moded(more...)
			s := f.session(nil)
			f.want(s.prompt("note pid; mode plan"), subjects.RunCompleted, "", 10*time.Second)
			s.warm(w)
			if r := s.set("one", subjects.MethodSetOption, `{"configId":"model","value":"large"}`); r.Error != "" || r.Fault != nil || r.Decided {
				t.Fatalf("set: %+v", r)
			}
			s.replaced(w, f.noted("pid", 1))
			f.want(s.prompt("settings"), subjects.RunCompleted, "", 10*time.Second)
			if said := s.said(); said[len(said)-1] != "plan large" {
				t.Errorf("the agent has %q", said)
			}
			if got := told[subjects.SettingsBody](s, subjects.EventSettings); len(got) != 2 {
				t.Errorf("nothing changed, and it was told: %+v", got)
			}
		})
	}
}

// Wishes are applied when the process starts, and once; the one that the agent refuses is
// told.
func TestWishesAreAppliedAtTheStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.moded()
	s := f.session(nil)
	if r, err := f.b.Control(t.Context(), s.meta.Lane, subjects.ControlRequest{Op: subjects.ControlSet}, time.Second); err == nil {
		t.Fatalf("an owner of nothing answered %+v", r)
	}
	s.wish(subjects.MethodSetMode, `{"sessionId":"ours","modeId":"plan","_meta":{"x":1}}`)
	s.wish(subjects.MethodSetOption, `{"sessionId":"ours","configId":"model","value":"secret"}`)
	f.want(s.prompt("note pid; settings"), subjects.RunCompleted, "", 10*time.Second)
	if said := s.said(); len(said) != 1 || said[0] != "plan small" {
		t.Errorf("the agent has %q", said)
	}
	if notes := told[subjects.Note](s, subjects.EventNote); len(notes) != 1 || notes[0].Error != "not here" || !strings.Contains(notes[0].Text, "option") {
		t.Errorf("notes %+v", notes)
	}
	if a := s.agent(); a.Settled != 2 || settings.Mode(a.Settings) != "plan" {
		t.Errorf("noted: %d %s", a.Settled, a.Settings.Modes)
	}
	// What was chosen since counts, at the next start and while it runs.
	s.warm(w)
	if r := setMode(s, "work"); r.Result == nil {
		t.Fatalf("set: %+v", r)
	}
	s.replaced(w, f.noted("pid", 1))
	f.want(s.prompt("settings; note pid"), subjects.RunCompleted, "", 10*time.Second)
	f.want(s.prompt("settings"), subjects.RunCompleted, "", 10*time.Second)
	if said := s.said(); !slices.Equal(said, []string{"plan small", "work small", "work small"}) {
		t.Errorf("the agent had %q", said)
	}
}

// A wish that a process has missed, which was just starting, comes with the next run.
func TestAMissedWishComesWithTheNextRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3*time.Second)
	w := f.moded()
	s := f.session(nil)
	f.want(s.prompt("settings"), subjects.RunCompleted, "", 10*time.Second)
	s.warm(w)
	s.wish(subjects.MethodSetMode, `{"modeId":"plan"}`)
	f.want(s.prompt("settings"), subjects.RunCompleted, "", 10*time.Second)
	natstest.Eventually(t, 10*time.Second, "it is noted", func() (bool, any) { a := s.agent(); return a.Settled == 1, a.Settled })
	if said := s.said(); !slices.Equal(said, []string{"work small", "plan small"}) {
		t.Errorf("the agent had %q", said)
	}
	if r := s.control(subjects.ControlRequest{Op: subjects.ControlSet, Call: "late", Wish: 1, Method: subjects.MethodSetMode, Params: json.RawMessage(`{"modeId":"plan"}`)}); string(r.Result) != "{}" {
		t.Errorf("a wish that is fulfilled: %+v", r)
	}
	if got := f.notes("sets"); len(got) != 1 {
		t.Errorf("the agent was told %q", got)
	}
	if r := s.control(subjects.ControlRequest{Op: subjects.ControlSet, Call: "new", Wish: 2, Method: subjects.MethodSetMode, Params: json.RawMessage(`{"modeId":"work"}`)}); string(r.Result) != "{}" {
		t.Errorf("a wish that finds the process: %+v", r)
	}
	if a := s.agent(); a.Settled != 2 {
		t.Errorf("settled %d", a.Settled)
	}
}
