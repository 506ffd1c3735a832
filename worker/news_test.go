package worker

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// news is what came on the subjects of fleet events.
type news struct {
	f *fleet
	w *watch
}

func (f *fleet) watchFleet() *news {
	f.t.Helper()
	return &news{f: f, w: f.watch(f.f.FleetEventAll(), nil)}
}

// find returns the first event of a kind that is about a prompt, or any for "".
func (n *news) find(kind subjects.FleetEventKind, p subjects.PromptID) (subjects.FleetEvent, bool) {
	n.f.t.Helper()
	for _, x := range n.w.all() {
		var e subjects.FleetEvent
		if err := json.Unmarshal([]byte(x.body), &e); err != nil {
			n.f.t.Fatalf("%s: %v", x.subject, err)
		}
		// Each is published on the subject of its kind.
		if x.subject != n.f.f.FleetEvent(e.Kind) {
			n.f.t.Fatalf("%s on %s", e.Kind, x.subject)
		}
		if e.Kind == kind && (p == "" || e.Prompt == p) {
			return e, true
		}
	}
	return subjects.FleetEvent{}, false
}

// await waits for an event.
func (n *news) await(kind subjects.FleetEventKind, p subjects.PromptID) subjects.FleetEvent {
	n.f.t.Helper()
	var e subjects.FleetEvent
	natstest.Eventually(n.f.t, 10*time.Second, string(kind)+" is told", func() (bool, any) {
		var found bool
		e, found = n.find(kind, p)
		return found, fmt.Sprintf("%d events came", len(n.w.all()))
	})
	return e
}

func TestAWorkerTellsTheFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	told := f.watchFleet()
	w := f.run(nil)
	if e := told.await(subjects.WorkerJoined, ""); e.Instance != w.Instance() || e.Time.IsZero() {
		t.Errorf("%+v", e)
	}
	s := f.session(slot("1bjorn"))
	about := func(e subjects.FleetEvent) {
		t.Helper()
		if e.Raider != bjorn || e.Lane != s.meta.Lane || e.Session != s.meta.Session || e.Principal != s.meta.Principal || e.Instance != w.Instance() || e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
	}
	p := s.prompt("say hello")
	about(told.await(subjects.RaiderSpawned, p))
	e := told.await(subjects.SessionBound, "")
	about(e)
	if e.Binding != "slot:1bjorn" {
		t.Errorf("bound: %+v", e)
	}
	e = told.await(subjects.RaiderDone, p)
	about(e)
	if e.Outcome != subjects.RunCompleted {
		t.Errorf("done: %+v", e)
	}
	failed := s.prompt("error no")
	if e = told.await(subjects.RaiderDone, failed); e.Outcome != subjects.RunFailed {
		t.Errorf("done: %+v", e)
	}
	s = f.session(func(m *subjects.SessionMeta) { m.Cwd = f.path("nowhere") })
	refused := s.prompt("say no")
	e = told.await(subjects.RaiderRefused, refused)
	about(e)
	if e.Outcome != subjects.RunRefused {
		t.Errorf("refused: %+v", e)
	}
	if _, found := told.find(subjects.RaiderSpawned, refused); found {
		t.Error("a raider was started for a prompt that was refused")
	}
	w.stop()
	<-w.ended
	if e = told.await(subjects.WorkerLeft, ""); e.Instance != w.Instance() {
		t.Errorf("%+v", e)
	}
}

func TestAWorkerAnswersAsAService(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) { c.Version = "1.2.3" })
	natstest.WantService(t, f.b, "raiderfleet-worker", "1.2.3", map[string]string{"fleet": string(f.f), "instance": string(w.Instance())})
	w.stop()
	<-w.ended
	natstest.WantNoService(t, f.b, "raiderfleet-worker")
}
