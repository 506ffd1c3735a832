package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// session is a session as a front door makes it.
type session struct {
	f    *fleet
	meta subjects.SessionMeta
}

func (f *fleet) session(change func(*subjects.SessionMeta)) *session {
	f.t.Helper()
	id := subjects.NewSession()
	s := &session{f: f, meta: subjects.SessionMeta{
		Session: id, Principal: subjects.LocalPrincipal, Raider: bjorn, Lane: subjects.SessionLane(id),
		Class: subjects.AnyClass, State: subjects.SessionOpen, Cwd: f.dir, Created: time.Now(),
	}}
	if change != nil {
		change(&s.meta)
	}
	s.save()
	return s
}

// slot makes the session one of a slot.
func slot(name string) func(*subjects.SessionMeta) {
	return func(m *subjects.SessionMeta) { m.Slot, m.Lane = name, subjects.LaneID("slot-"+name) }
}

func (s *session) save() {
	s.f.t.Helper()
	if _, err := s.f.b.SetJSON(s.f.t.Context(), s.f.f.SessionsBucket(), subjects.MetaKey(s.meta.Principal, s.meta.Session), s.meta, 0); err != nil {
		s.f.t.Fatal(err)
	}
}

// store publishes a prompt to the backlog, without a baton.
func (s *session) store(script string, args ...any) (subjects.PromptID, uint64) {
	s.f.t.Helper()
	body, err := json.Marshal(map[string]any{
		"sessionId": s.meta.Session, "prompt": []any{map[string]string{"type": "text", "text": fmt.Sprintf(script, args...)}},
	})
	if err != nil {
		s.f.t.Fatal(err)
	}
	h := subjects.PromptHeader{
		Prompt: subjects.NewPrompt(), Session: s.meta.Session, Principal: s.meta.Principal, Kind: subjects.KindPrompt, Priority: "normal",
	}
	seq, err := s.f.b.Publish(s.f.t.Context(), &nats.Msg{Subject: s.f.f.Backlog(s.meta.Raider, s.meta.Lane, s.meta.Principal), Header: h.Header(), Data: body},
		jetstream.WithMsgID(string(h.Prompt)))
	if err != nil {
		s.f.t.Fatal(err)
	}
	return h.Prompt, seq
}

// baton publishes the lane's baton; 0 when it has one already.
func (s *session) baton() uint64 {
	s.f.t.Helper()
	seq, err := s.f.b.Publish(s.f.t.Context(), &nats.Msg{Subject: s.f.f.Ready(s.meta.Raider, subjects.AnyClass, s.meta.Lane)})
	if err != nil && !errors.Is(err, bus.ErrFull) {
		s.f.t.Fatal(err)
	}
	return seq
}

func (s *session) prompt(script string, args ...any) subjects.PromptID {
	s.f.t.Helper()
	p, _ := s.store(script, args...)
	s.baton()
	return p
}

// inHand is the lane's baton as if a worker had it: nobody listens on its reply.
func (s *session) inHand(w *testWorker, seq uint64) baton {
	return baton{raider: w.raiders[s.meta.Raider], class: subjects.AnyClass, lane: s.meta.Lane, seq: seq, reply: "test.extend"}
}

func (s *session) own() string { return s.f.f.Own(s.meta.Raider, s.meta.Lane) }

// writeOwn writes the lane's own message whatever is there.
func (s *session) writeOwn(o subjects.Own) uint64 {
	s.f.t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		s.f.t.Fatal(err)
	}
	seq, err := s.f.b.Publish(s.f.t.Context(), &nats.Msg{Subject: s.own(), Data: body})
	if err != nil {
		s.f.t.Fatal(err)
	}
	return seq
}

// deadClaim is the claim of an instance that nobody has ever heard of.
func (s *session) deadClaim() (subjects.Owner, uint64) {
	s.f.t.Helper()
	i, err := subjects.NewInstance("dead")
	if err != nil {
		s.f.t.Fatal(err)
	}
	seq := s.writeOwn(subjects.Own{Type: subjects.OwnClaim, Owner: subjects.Owner{Instance: i}})
	return subjects.Owner{Instance: i, Epoch: seq}, seq
}

// record is the prompt's run record, zero when there is none.
func (f *fleet) record(p subjects.PromptID) subjects.RunRecord {
	f.t.Helper()
	var r subjects.RunRecord
	if _, err := f.b.GetJSON(f.t.Context(), f.f.RunsBucket(), subjects.RunKey(p), &r); err != nil && !errors.Is(err, bus.ErrNotFound) {
		f.t.Fatal(err)
	}
	return r
}

// ended waits for the prompt's end.
func (f *fleet) ended(p subjects.PromptID, within time.Duration) subjects.RunRecord {
	f.t.Helper()
	var r subjects.RunRecord
	natstest.Eventually(f.t, within, "prompt "+string(p)+" ends", func() (bool, any) {
		r = f.record(p)
		return r.State.Ended(), r.State
	})
	return r
}

// want waits for the prompt's end and compares it.
func (f *fleet) want(p subjects.PromptID, state subjects.RunState, text string, within time.Duration) subjects.RunRecord {
	f.t.Helper()
	r := f.ended(p, within)
	message := ""
	if r.Outcome != nil && r.Outcome.Error != nil {
		message = r.Outcome.Error.Message
	}
	if r.State != state || !strings.Contains(message, text) || (text == "" && message != "") {
		f.t.Fatalf("prompt ended as %s %q, want %s with %q", r.State, message, state, text)
	}
	return r
}
