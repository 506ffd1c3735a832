package admin

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.meta(subjects.SessionMeta{Session: "s1", Principal: "ada", Raider: "bjorn", Slot: "1bjorn", Lane: "slot-1bjorn", State: subjects.SessionOpen, Cwd: "/p", Title: "Hello", Created: now, Updated: now})
	w.meta(subjects.SessionMeta{Session: "s2", Principal: "bo", Raider: "bjorn", Lane: "sess-s2", State: subjects.SessionClosed, Cwd: "/p", Updated: now.Add(time.Second)})
	w.meta(subjects.SessionMeta{Session: "gone", Principal: "bo"})
	if err := w.b.Delete(t.Context(), w.b.Fleet().SessionsBucket(), subjects.MetaKey("bo", "gone")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.b.SetJSON(t.Context(), w.b.Fleet().SessionsBucket(), subjects.AgentKey("ada", "s1"), subjects.SessionAgent{Home: "w1"}, 0); err != nil {
		t.Fatal(err)
	}
	w.node(subjects.Node{Role: subjects.RoleWorker, Instance: "w1-a", State: subjects.NodeUp})
	w.answer(w.b.Fleet().Worker("w1-a"), func(m *nats.Msg) {
		w.respond(m, `{"lanes":[{"lane":"slot-1bjorn","raider":"bjorn","session":"s1","prompt":"p1","state":"running","worker":"w1-a","epoch":1}]}`)
	})
	open, silent, err := w.f.Sessions(t.Context(), false)
	if err != nil || len(open) != 1 || len(silent) != 0 {
		t.Fatalf("got %+v, %v, %v", open, silent, err)
	}
	if s := open[0]; s.Session != "s1" || s.Home != "w1" || s.Worker != "w1-a" || s.Activity != "running" || s.Prompt != "p1" || s.Slot != "1bjorn" {
		t.Errorf("got %+v", s)
	}
	all, _, err := w.f.Sessions(t.Context(), true)
	if err != nil || len(all) != 2 || all[0].Session != "s2" {
		t.Errorf("all: %+v, %v", all, err)
	}
	if left := w.consumers("KV_" + w.b.Fleet().SessionsBucket()); left != 0 {
		t.Errorf("%d consumers are left", left)
	}
	var b strings.Builder
	if err := errors.Join(WriteSessions(&b, all, now), WriteSessions(&b, nil, now), WriteReset(&b, Reset{Session: "s1"})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"open, running", "1bjorn", "Hello", "closed", "no session is there", "s1 reset"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestResetSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.meta(subjects.SessionMeta{Session: "s1", Principal: "ada", Raider: "bjorn", Slot: "1bjorn", Lane: "slot-1bjorn"})
	key, bucket := subjects.AgentKey("ada", "s1"), w.b.Fleet().SessionsBucket()
	if _, err := w.b.SetJSON(t.Context(), bucket, key, subjects.SessionAgent{InnerID: "c0ffee"}, 0); err != nil {
		t.Fatal(err)
	}
	told, err := w.b.Conn().SubscribeSync(w.b.Fleet().FleetEvent(subjects.SessionReset))
	if err != nil {
		t.Fatal(err)
	}
	// No worker has the lane, then one has.
	if r, err := w.f.ResetSession(t.Context(), "s1"); err != nil || r.InnerID != "c0ffee" || r.Binding != "slot:1bjorn" {
		t.Fatalf("got %+v, %v", r, err)
	}
	var agent subjects.SessionAgent
	if _, err := w.b.GetJSON(t.Context(), bucket, key, &agent); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("the agent's record: %+v, %v", agent, err)
	}
	m, err := told.NextMsgWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var e subjects.FleetEvent
	if err := json.Unmarshal(m.Data, &e); err != nil || e.Session != "s1" || e.Binding != "slot:1bjorn" || e.Principal != "ada" {
		t.Errorf("told %s, %v", m.Data, err)
	}
	if last, err := w.b.Last(t.Context(), w.b.Fleet().EventsStream(), w.b.Fleet().Event("s1")); err != nil || !strings.Contains(string(last.Data), "session.reset") {
		t.Errorf("clients are told %s, %v", last.Data, err)
	}
	asked := 0
	w.answer(w.b.Fleet().Control("slot-1bjorn"), func(m *nats.Msg) {
		var r subjects.ControlRequest
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Op != subjects.ControlReset || r.Session != "s1" || r.Principal != "ada" {
			t.Errorf("the owner was asked %s", m.Data)
		}
		if asked++; asked == 1 {
			w.respond(m, `{"error":"not yet"}`)
			return
		}
		w.respond(m, `{}`)
	})
	if _, err := w.f.ResetSession(t.Context(), "s1"); err != nil || asked != 2 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if _, err := w.f.ResetSession(t.Context(), "nobody"); !errors.Is(err, ErrNoSession) {
		t.Errorf("unknown: %v", err)
	}
}

func TestRaiders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node(subjects.Node{Role: subjects.RoleWorker, Instance: "w1-a", State: subjects.NodeUp, Raiders: []subjects.Raider{"bjorn", "demo"}})
	w.node(subjects.Node{Role: subjects.RoleFrontDoor, Instance: "fd-a", State: subjects.NodeUp, Raiders: []subjects.Raider{"bjorn"}})
	w.node(subjects.Node{Role: subjects.RoleWorker, Instance: "w2-b", State: subjects.NodeGoodbye, Raiders: []subjects.Raider{"old"}})
	running := w.accept("1bjorn", "s1")
	w.accept("1bjorn", "s1")
	w.accept("1astrid", "s1")
	w.answer(w.b.Fleet().Worker("w1-a"), func(m *nats.Msg) {
		w.respond(m, `{"lanes":[{"lane":"slot-1bjorn","raider":"bjorn","prompt":"`+string(running)+`","state":"running"},{"lane":"sess-x","raider":"demo","state":"warm"}]}`)
	})
	raiders, err := w.f.Raiders(t.Context(), map[subjects.Raider]string{"demo": "a demo", "knut": ""})
	if err != nil || len(raiders) != 4 {
		t.Fatalf("got %+v, %v", raiders, err)
	}
	astrid, bjorn, demo, knut := raiders[0], raiders[1], raiders[2], raiders[3]
	if astrid.Waiting != 1 || len(astrid.Workers) != 0 || astrid.Configured {
		t.Errorf("astrid: %+v", astrid)
	}
	if bjorn.Running != 1 || bjorn.Waiting != 1 || len(bjorn.Workers) != 1 || len(bjorn.FrontDoors) != 1 {
		t.Errorf("bjorn: %+v", bjorn)
	}
	if demo.Warm != 1 || !demo.Configured || demo.Description != "a demo" || !knut.Configured {
		t.Errorf("demo: %+v, knut: %+v", demo, knut)
	}
	served, err := w.f.Served(t.Context())
	if err != nil || len(served) != 2 || served[0] != "bjorn" || served[1] != "demo" {
		t.Errorf("served: %q, %v", served, err)
	}
	var b strings.Builder
	if err := WriteRaiders(&b, raiders); err != nil || !strings.Contains(b.String(), "w1-a") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
