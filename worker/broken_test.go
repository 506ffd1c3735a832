package worker

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// large stores a prompt whose content is in the object store, and the lane's baton.
func (s *session) large(texts ...string) subjects.PromptID {
	s.f.t.Helper()
	var blocks []map[string]string
	for _, text := range texts {
		blocks = append(blocks, map[string]string{"type": "text", "text": text})
	}
	body, err := json.Marshal(map[string]any{"sessionId": s.meta.Session, "prompt": blocks})
	if err != nil {
		s.f.t.Fatal(err)
	}
	p := subjects.NewPrompt()
	if err := s.f.b.PutPayload(s.f.t.Context(), string(p), body); err != nil {
		s.f.t.Fatal(err)
	}
	h := subjects.PromptHeader{
		Prompt: p, Session: s.meta.Session, Principal: s.meta.Principal, Kind: subjects.KindPrompt, Priority: "normal", Payload: string(p),
	}
	s.f.put(s.f.f.Backlog(bjorn, s.meta.Lane, s.meta.Principal), h.Header(), nil)
	s.baton()
	return p
}

func (f *fleet) put(subject string, h nats.Header, body []byte) {
	f.t.Helper()
	if _, err := f.b.Publish(f.t.Context(), &nats.Msg{Subject: subject, Header: h, Data: body}); err != nil {
		f.t.Fatal(err)
	}
}

// Whoever lists lanes while their raiders stream must not stop them: the two locks were
// once taken in both orders.
func TestStatusWhileEventsAreAppended(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	l := newLane(w.Worker, s.inHand(w, 1))
	defer l.abandon()
	ended := make(chan error, 2)
	go func() {
		var err error
		for i := 0; i < 20000 && err == nil; i++ {
			err = l.out.append(s.meta.Session, subjects.EventUpdate, "", []byte("{}"), nil)
		}
		ended <- err
	}()
	go func() {
		for range 20000 {
			l.status()
		}
		ended <- nil
	}()
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("both wait for each other")
		}
	}
}

// An outcome larger than a message ends its prompt all the same, and is stored whole.
func TestAnOutcomeLargerThanAMessage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	text := strings.Repeat("x", 2<<20)
	p := s.large("error " + text)
	r := f.want(p, subjects.RunFailed, "xxx", 20*time.Second)
	if len(r.Outcome.Error.Message) > 2*tailBytes {
		t.Errorf("the record has %d bytes of it", len(r.Outcome.Error.Message))
	}
	body, err := f.b.GetPayload(t.Context(), r.Outcome.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var whole subjects.Outcome
	if err := json.Unmarshal(body, &whole); err != nil || whole.Error == nil || whole.Error.Message != text {
		t.Errorf("the object is not the outcome: %v", err)
	}
	f.want(s.prompt("say on"), subjects.RunCompleted, "", 10*time.Second)
}

// A cancel that is taken before the raider was asked must not get there first.
func TestCancelBeforeThePromptIsSent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(func(c *Config) { c.CancelGrace = 0 }) // no signal helps
	s := f.session(nil)
	f.want(s.prompt("say warm"), subjects.RunCompleted, "", 10*time.Second)
	p := s.large("wait "+f.path("never"), strings.Repeat("y", 12<<20)) // it takes a while to read
	req, err := json.Marshal(subjects.ControlRequest{
		Op: subjects.ControlCancel, Principal: s.meta.Principal, Session: s.meta.Session, Prompt: p,
	})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, 20*time.Second, "the cancel is taken", func() (bool, any) {
		m, err := f.b.Conn().Request(f.f.Control(s.meta.Lane), req, time.Second)
		if err != nil {
			return false, err
		}
		var reply subjects.ControlReply
		err = json.Unmarshal(m.Data, &reply)
		return err == nil && reply.Error == "", reply.Error
	})
	f.want(p, subjects.RunCancelled, "", 20*time.Second)
	f.want(s.prompt("say on"), subjects.RunCompleted, "", 10*time.Second)
}

// What nobody of ours wrote holds up neither its lane nor the worker.
func TestGarbageInTheRecords(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	f.run(nil)

	record := f.session(nil)
	p, _ := record.store("say hi")
	f.put("$KV."+f.f.RunsBucket()+"."+subjects.RunKey(p), nil, []byte("{{{"))
	next := record.prompt("say on")
	f.want(next, subjects.RunCompleted, "", 20*time.Second) // after it the other can be read again
	f.want(p, subjects.RunFailed, "can't be read", time.Second)

	own := f.session(nil)
	f.put(own.own(), nil, []byte("{{{"))
	f.want(own.prompt("say on"), subjects.RunCompleted, "", 20*time.Second)

	meta := f.session(nil)
	f.put("$KV."+f.f.SessionsBucket()+"."+subjects.MetaKey(meta.meta.Principal, meta.meta.Session), nil, []byte("{{{"))
	f.want(meta.prompt("say on"), subjects.RunRefused, "session is gone", 20*time.Second)
}
