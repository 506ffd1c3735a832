package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

const (
	yes       = `{"outcome":"selected","optionId":"yes"}`
	no        = `{"outcome":"selected","optionId":"no"}`
	never     = `{"outcome":"selected","optionId":"never"}`
	cancelled = `{"outcome":"cancelled"}`
)

// attach makes a front door that has these clients of the session.
func (s *session) attach(clients ...subjects.Attachment) {
	s.f.t.Helper()
	body, err := json.Marshal(subjects.AttachedReply{FrontDoor: "door-1", Attachments: clients})
	if err != nil {
		s.f.t.Fatal(err)
	}
	sub, err := s.f.b.Conn().Subscribe(s.f.f.Attached(s.meta.Session), func(m *nats.Msg) { _ = m.Respond(body) })
	if err != nil {
		s.f.t.Fatal(err)
	}
	s.f.flush(s.f.b)
	s.f.t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// control asks the lane's owner.
func (s *session) control(req subjects.ControlRequest) subjects.ControlReply {
	s.f.t.Helper()
	if req.Principal == "" {
		req.Principal = s.meta.Principal
	}
	req.Session = s.meta.Session
	body, err := json.Marshal(req)
	if err != nil {
		s.f.t.Fatal(err)
	}
	m, err := s.f.b.Conn().Request(s.f.f.Control(s.meta.Lane), body, 5*time.Second)
	if err != nil {
		s.f.t.Fatal(err)
	}
	var reply subjects.ControlReply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		s.f.t.Fatal(err)
	}
	return reply
}

func (s *session) answer(a subjects.AskID, outcome, by string) subjects.ControlReply {
	s.f.t.Helper()
	return s.control(subjects.ControlRequest{Op: subjects.ControlAnswer, Ask: a, Outcome: json.RawMessage(outcome), By: by})
}

// asked waits for the ask event and its entry in ASKS.
func (s *session) asked() subjects.AskBody {
	s.f.t.Helper()
	var a subjects.AskBody
	natstest.Eventually(s.f.t, 10*time.Second, "ask", func() (bool, any) {
		there := false
		for _, e := range s.events() {
			if e.Kind == subjects.EventAsk {
				if err := json.Unmarshal(e.Body, &a); err != nil {
					s.f.t.Fatal(err)
				}
				there = s.entry(a.Ask)
			}
		}
		return there, s.kinds()
	})
	return a
}

func (s *session) entry(a subjects.AskID) bool {
	s.f.t.Helper()
	_, err := s.f.b.Get(s.f.t.Context(), s.f.f.AsksBucket(), subjects.AskKey(s.meta.Session, a))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		s.f.t.Fatal(err)
	}
	return err == nil
}

// decided waits for the run's end and tells what the raider was told and why.
func (s *session) decided(p subjects.PromptID) (told string, done subjects.AskDone) {
	s.f.t.Helper()
	s.f.want(p, subjects.RunCompleted, "", 10*time.Second)
	for _, e := range s.events() {
		if e.Kind == subjects.EventAskDone {
			if err := json.Unmarshal(e.Body, &done); err != nil {
				s.f.t.Fatal(err)
			}
		}
	}
	natstest.Eventually(s.f.t, 5*time.Second, "the entry in ASKS goes", func() (bool, any) { return !s.entry(done.Ask), done.Ask })
	return strings.Join(s.said(), " "), done
}

// What the raider asks is put to clients as it is, with the fleet's id of the session.
func TestAnAskPassesAsItIs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	p := s.prompt("ask")
	a := s.asked()
	if want := `{"sessionId":"` + string(s.meta.Session) + `",` + askRest; string(a.Request) != want {
		t.Errorf("the ask is put as\n%s\nwant\n%s", a.Request, want)
	}
	if a.Prompt != p || a.Session != s.meta.Session || a.Principal != s.meta.Principal || a.Raider != bjorn || a.Lane != s.meta.Lane || a.Owner.Epoch == 0 {
		t.Errorf("the ask is %+v", a)
	}
	s.answer(a.Ask, yes, "cli")
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
}

func TestAsks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(func(c *Config) { c.Capacity = 10; c.ReconnectGrace = 3 * time.Second })
	type step struct{ outcome, by string }
	for name, x := range map[string]struct {
		clients []subjects.Attachment
		steps   []step
		told    string
		by      string
	}{
		"allowed":                         {[]subjects.Attachment{"a1"}, []step{{yes, "a1"}}, yes, "a1"},
		"rejected":                        {[]subjects.Attachment{"a1"}, []step{{no, "a1"}}, no, "a1"},
		"rejected for ever":               {[]subjects.Attachment{"a1"}, []step{{never, "a1"}}, never, "a1"},
		"by nobody attached":              {nil, []step{{yes, "cli"}}, yes, "cli"},
		"unknown option refuses":          {[]subjects.Attachment{"a1"}, []step{{`{"outcome":"selected","optionId":"root"}`, "a1"}}, no, "a1"},
		"not JSON refuses":                {[]subjects.Attachment{"a1"}, []step{{`"what"`, "a1"}}, no, "a1"},
		"cancelled by the only one":       {[]subjects.Attachment{"a1"}, []step{{cancelled, "a1"}}, no, "a1"},
		"cancelled by one, other may yes": {[]subjects.Attachment{"a1", "a2"}, []step{{cancelled, "a1"}, {yes, "a2"}}, yes, "a2"},
		"cancelled by both":               {[]subjects.Attachment{"a1", "a2"}, []step{{cancelled, "a1"}, {cancelled, "a2"}}, no, "a2"},
		"the same one twice":              {[]subjects.Attachment{"a1", "a2"}, []step{{cancelled, "a1"}, {cancelled, "a1"}, {yes, "a2"}}, yes, "a2"},
	} {
		s := f.session(nil)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := *f
			f.t = t
			s := &session{f: &f, meta: s.meta}
			s.attach(x.clients...)
			p := s.prompt("ask")
			a := s.asked()
			if !strings.Contains(string(a.Request), string(s.meta.Session)) || strings.Contains(string(a.Request), "inner-") {
				t.Fatalf("the client is asked %s", a.Request)
			}
			// Somebody else's answer is none.
			other := s.control(subjects.ControlRequest{Op: subjects.ControlAnswer, Principal: "stranger", Ask: a.Ask, Outcome: json.RawMessage(yes), By: "x"})
			if !other.Decided {
				t.Fatalf("stranger's answer: %+v", other)
			}
			for i, step := range x.steps {
				if i > 0 {
					if s.kinds()[subjects.EventAskDone] != 0 {
						t.Fatalf("decided by step %d", i)
					}
				}
				if r := s.answer(a.Ask, step.outcome, step.by); r.Decided || r.Error != "" {
					t.Fatalf("step %d: %+v", i+1, r)
				}
			}
			told, done := s.decided(p)
			if told != `{"outcome":`+x.told+`}` || done.Why != "answered" || done.By != x.by || string(done.Outcome) != x.told {
				t.Fatalf("the raider was told %s; event: %+v %s", told, done, done.Outcome)
			}
			if r := s.answer(a.Ask, yes, "late"); !r.Decided {
				t.Fatalf("a late answer: %+v", r)
			}
		})
	}
}

func TestAskTimesOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(func(c *Config) { c.PermissionTimeout = 300 * time.Millisecond })
	s := f.session(nil)
	s.attach("a1")
	p := s.prompt("ask")
	want := `{"outcome":` + no + `,"_meta":{"raiderfleet/reason":"Nobody answered in time."}}`
	if told, done := s.decided(p); told != want || string(done.Outcome) != no || done.Why != "timeout" {
		t.Fatalf("told %s; %+v", told, done)
	}
}

func TestAskEndsWhenTheLastClientHasGone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(func(c *Config) { c.ReconnectGrace = 200 * time.Millisecond })
	kept, left := f.session(nil), f.session(nil)
	kept.attach("a1")
	pk, pl := kept.prompt("ask"), left.prompt("ask")
	want := `{"outcome":` + no + `,"_meta":{"raiderfleet/reason":"Nobody is left who could be asked."}}`
	if told, done := left.decided(pl); told != want || string(done.Outcome) != no || done.Why != "no client" {
		t.Fatalf("told %s; %+v", told, done)
	}
	// The one whose client is there waits on, far longer than the grace.
	a := kept.asked()
	natstest.Stays(t, 800*time.Millisecond, "the ask waits", func() (bool, any) {
		return kept.kinds()[subjects.EventAskDone] == 0, kept.kinds()
	})
	kept.answer(a.Ask, yes, "a1")
	if told, done := kept.decided(pk); told != `{"outcome":`+yes+`}` || done.Why != "answered" {
		t.Fatalf("told %s; %+v", told, done)
	}
}

func TestACancelledTurnCancelsItsAsk(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5*time.Second)
	w := f.run(nil)
	s := f.session(nil)
	s.attach("a1")
	p := s.prompt("ask; note told")
	a := s.asked()
	if st := w.owned(s.meta.Lane).status().State; st != "waiting for approval" {
		t.Fatalf("state %q", st)
	}
	f.putMark(p)
	if r := s.control(subjects.ControlRequest{Op: subjects.ControlCancel, Prompt: p}); r.Error != "" {
		t.Fatalf("cancel: %+v", r)
	}
	f.want(p, subjects.RunCancelled, "", 5*time.Second)
	if said := s.said(); len(said) != 1 || said[0] != `{"outcome":`+cancelled+`}` {
		t.Fatalf("the raider was told %v", said)
	}
	if s.kinds()[subjects.EventAskDone] != 1 || len(f.notes("told")) != 1 {
		t.Fatalf("events %v, raider went on: %v", s.kinds(), f.notes("told"))
	}
	natstest.Eventually(t, 5*time.Second, "the entry in ASKS goes", func() (bool, any) { return !s.entry(a.Ask), a.Ask })
}

func TestALostOwnersAsksAreClosed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	s := f.session(nil)
	dead, _ := s.deadClaim()
	p, _ := s.store("say x")
	f.putRecord(p, s.runningUnder(dead, 1))
	a := f.putAsk(s, p, dead)
	f.run(nil)
	s.baton()
	f.want(p, subjects.RunFailed, "was lost", 10*time.Second)
	if s.entry(a) || s.kinds()[subjects.EventAskDone] != 1 {
		t.Fatalf("entry: %v, events: %v", s.entry(a), s.kinds())
	}
}

// A run has so many open asks at most; the raider is told of more at once, and nobody is
// asked. When some have been answered there is room again.
func TestTheOpenAsksOfARunAreBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	s.attach("a1")
	p := s.prompt("asks %d; ask", maxOpenAsks+3)
	natstest.Eventually(t, 20*time.Second, "all are asked or refused", func() (bool, any) {
		asks, said := s.kinds()[subjects.EventAsk], s.said()
		return asks == maxOpenAsks && len(said) == 3, fmt.Sprint(asks, said)
	})
	for _, text := range s.said() {
		if !strings.Contains(text, "64 permission requests of this turn are open already") {
			t.Errorf("the raider was told %s", text)
		}
	}
	answered := map[subjects.AskID]bool{}
	natstest.Eventually(t, 20*time.Second, "the run ends", func() (bool, any) {
		for _, e := range s.events() {
			var a subjects.AskBody
			if e.Kind != subjects.EventAsk || json.Unmarshal(e.Body, &a) != nil || answered[a.Ask] {
				continue
			}
			if r := s.answer(a.Ask, yes, "a1"); r.Error != "" || r.Decided {
				t.Fatalf("answer: %+v", r)
			}
			answered[a.Ask] = true
		}
		return f.record(p).State.Ended(), len(answered)
	})
	f.want(p, subjects.RunCompleted, "", time.Second)
	if len(answered) != maxOpenAsks+1 {
		t.Errorf("%d were asked", len(answered))
	}
}

// An ask of a lost owner is closed also when ASKS can't be read at first: the run goes on
// only when it has been.
func TestALostOwnersAsksAreClosedWhenAsksCantBeRead(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	f := newFleetAt(t, server.ClientURL(), natstest.Layout(1), 2*time.Second)
	s := f.session(nil)
	dead, _ := s.deadClaim()
	p, _ := s.store("say x")
	f.putRecord(p, s.runningUnder(dead, 1))
	a := f.putAsk(s, p, dead)
	// Nobody answers who asks what is in ASKS.
	asked := "$JS.API.STREAM.INFO.KV_" + f.f.AsksBucket()
	unanswered := f.watch("lost.asks", nil)
	if err := server.GlobalAccount().AddMapping(asked, "lost.asks"); err != nil {
		t.Fatal(err)
	}
	f.run(nil)
	s.baton()
	natstest.Eventually(t, 10*time.Second, "ASKS is asked for again", func() (bool, any) {
		return len(unanswered.all()) > 1, len(unanswered.all())
	})
	if r := f.record(p); r.State.Ended() || !s.entry(a) {
		t.Fatalf("it has ended before: %+v", r)
	}
	server.GlobalAccount().RemoveMapping(asked)
	f.want(p, subjects.RunFailed, "was lost", 10*time.Second)
	if s.entry(a) || s.kinds()[subjects.EventAskDone] != 1 {
		t.Fatalf("entry: %v, events: %v", s.entry(a), s.kinds())
	}
}

// putAsk makes an open ask of a prompt.
func (f *fleet) putAsk(s *session, p subjects.PromptID, owner subjects.Owner) subjects.AskID {
	f.t.Helper()
	a := subjects.AskBody{Ask: subjects.NewAsk(), Session: s.meta.Session, Principal: s.meta.Principal, Prompt: p, Owner: owner}
	if _, err := f.b.SetJSON(f.t.Context(), f.f.AsksBucket(), subjects.AskKey(s.meta.Session, a.Ask), a, 0); err != nil {
		f.t.Fatal(err)
	}
	return a.Ask
}

// The sweep closes the asks of runs that have ended, and no other.
func TestTheSweepClosesAsksOfEndedRuns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	s := f.session(nil)
	dead := subjects.Owner{Instance: "dead-1", Epoch: 3}
	runs, ended, gone := subjects.NewPrompt(), subjects.NewPrompt(), subjects.NewPrompt()
	r := s.runningUnder(dead, 1)
	f.putRecord(runs, r)
	r.State = subjects.RunCompleted
	f.putRecord(ended, r)
	open, over, lost := f.putAsk(s, runs, dead), f.putAsk(s, ended, dead), f.putAsk(s, gone, dead)
	for range 2 { // again changes nothing
		if err := w.tidy(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if !s.entry(open) || s.entry(over) || s.entry(lost) || s.kinds()[subjects.EventAskDone] != 2 {
			t.Fatalf("entries: %v %v %v, events: %v", s.entry(open), s.entry(over), s.entry(lost), s.kinds())
		}
	}
}

// A question is in ASKS before it is shown: a client that comes back in between, and reads no
// events of before, would not be asked.
func TestAnAskIsInAsksBeforeItIsShown(t *testing.T) {
	t.Parallel()
	const asks = 20
	f := newFleet(t, 2*time.Second)
	f.run(nil)
	s := f.session(nil)
	type shown struct {
		ask   subjects.AskID
		there bool
	}
	seen := make(chan shown, asks)
	f.watch(f.f.Live(s.meta.Session), func(x watched) {
		var a subjects.AskBody
		if json.Unmarshal([]byte(x.body), &a) == nil && a.Ask != "" && a.Request != nil {
			seen <- shown{a.Ask, s.entry(a.Ask)}
		}
	})
	p := s.prompt("asks %d", asks)
	for range asks {
		select {
		case a := <-seen:
			if !a.there {
				t.Errorf("%s was shown before it was in ASKS", a.ask)
			}
			s.answer(a.ask, yes, "cli")
		case <-time.After(30 * time.Second):
			t.Fatal("no question")
		}
	}
	f.want(p, subjects.RunCompleted, "", 10*time.Second)
}
