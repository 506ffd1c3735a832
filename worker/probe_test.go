package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// told is what a worker's presence tells of its raiders' agents.
func (f *fleet) told(w *testWorker) map[subjects.Raider]subjects.Agent {
	f.t.Helper()
	var n subjects.Node
	if _, err := f.b.GetJSON(f.t.Context(), f.f.NodesBucket(), subjects.NodeKey(w.Instance()), &n); err != nil && !errors.Is(err, bus.ErrNotFound) {
		f.t.Fatal(err)
	}
	return n.Agents
}

// Agents are asked when the worker starts, beside its work; nothing of them is left. One that
// can't be asked is asked again, and its secrets stay out of the log.
func TestAgentsAreAsked(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 30*time.Second) // presence is told again at once, or never here
	w := f.run(func(c *Config) {
		c.Raiders = []Raider{
			{Name: "asked", Command: raiderCommand(t, "load", "notepid", f.path("asked")), Probe: true},
			{Name: "missing", Command: []string{"/nowhere/agent"}, Probe: true},
			{Name: "ends", Command: raiderCommand(t, "exit"), Probe: true, Env: map[string]string{"KEY": "licence found"}},
			{Name: "known", Command: raiderCommand(t), Agent: &subjects.Agent{Capabilities: []byte(`{"x":1}`)}},
			{Name: "silent", Command: raiderCommand(t, "notepid", f.path("silent"))},
		}
	})
	natstest.Eventually(t, 10*time.Second, "what they can is told", func() (bool, any) {
		told := f.told(w)
		return string(told["asked"].Capabilities) == `{"loadSession":true}` && string(told["known"].Capabilities) == `{"x":1}` && len(told) == 2, told
	})
	f.gone(f.noted("asked", 1), 10*time.Second)
	natstest.Eventually(t, 20*time.Second, "the others are asked again", func() (bool, any) {
		log := w.log.String()
		return strings.Count(log, "raider=missing") >= 2 && strings.Count(log, "raider=ends") >= 2, log
	})
	if log := w.log.String(); strings.Contains(log, "no licence found") || !strings.Contains(log, "no [KEY]") {
		t.Errorf("log: %s", log)
	}
	if n := f.notes("silent"); len(n) != 0 || len(f.notes("asked")) != 1 {
		t.Errorf("started: %v and %v", n, f.notes("asked"))
	}

	// A run tells, too.
	s := f.session(func(m *subjects.SessionMeta) { m.Raider = "silent" })
	f.want(s.prompt("say hello"), subjects.RunCompleted, "", 10*time.Second)
	natstest.Eventually(t, 10*time.Second, "what it can is told", func() (bool, any) {
		told := f.told(w)
		return string(told["silent"].Capabilities) == `{"loadSession":false}`, told
	})
}
