package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func (f *fleet) putRecord(p subjects.PromptID, r subjects.RunRecord) {
	f.t.Helper()
	if _, err := f.b.PutJSON(f.t.Context(), f.f.RunsBucket(), subjects.RunKey(p), r, 0, 0); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) putMark(p subjects.PromptID) {
	f.t.Helper()
	if _, err := f.b.SetJSON(f.t.Context(), f.f.RunsBucket(), subjects.CancelKey(p), subjects.CancelMark{By: "test", Time: time.Now()}, subjects.RunTTL); err != nil {
		f.t.Fatal(err)
	}
}

// emptied waits until the lane's backlog is empty.
func (s *session) emptied() {
	s.f.t.Helper()
	natstest.Eventually(s.f.t, 10*time.Second, "the backlog is empty", func() (bool, any) {
		m, err := s.f.b.Next(s.f.t.Context(), s.f.f.BacklogStream(), s.f.f.BacklogLane(s.meta.Raider, s.meta.Lane), 1)
		return errors.Is(err, bus.ErrNotFound), m.Seq
	})
}

// runningUnder is the record of a prompt that a worker was running when it was lost.
func (s *session) runningUnder(o subjects.Owner, attempt int) subjects.RunRecord {
	return subjects.RunRecord{
		State: subjects.RunRunning, Session: s.meta.Session, Principal: s.meta.Principal, Raider: s.meta.Raider,
		Lane: s.meta.Lane, Owner: o, Attempt: attempt, Started: time.Now(),
	}
}

func TestAnEndedPromptIsToldOnceMoreAndNeverRuns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.session(nil)
	// Its worker died after the record and before what follows from it.
	told, _ := s.store("note ran")
	untold, _ := s.store("note ran")
	for _, p := range []subjects.PromptID{told, untold} {
		out := &subjects.Outcome{Prompt: p, State: subjects.RunCompleted, StopReason: "end_turn", Worker: "dead-1", LastEpoch: 3, LastN: 7}
		r := s.runningUnder(subjects.Owner{Instance: "dead-1", Epoch: 3}, 1)
		r.State, r.Ended, r.Outcome = subjects.RunCompleted, time.Now(), out
		f.putRecord(p, r)
	}
	h := subjects.EventHeader{Kind: subjects.EventOutcome, Prompt: told, Worker: "dead-1", LastEpoch: 3, LastN: 7}.Header()
	h.Set("Nats-Msg-Id", string(told)+".outcome")
	if _, err := f.b.Publish(t.Context(), &nats.Msg{Subject: f.f.Event(s.meta.Session), Header: h, Data: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	f.run(nil)
	s.baton()
	s.emptied()
	for _, p := range []subjects.PromptID{told, untold} {
		if n := s.outcomes(p); n != 1 {
			t.Fatalf("%d outcome events", n)
		}
		if r := f.record(p); r.State != subjects.RunCompleted || r.Outcome.StopReason != "end_turn" || r.Outcome.Worker != "dead-1" {
			t.Fatalf("record: %+v", r)
		}
	}
	if e := s.events()[1]; e.ID != string(untold)+".outcome" || e.LastEpoch != 3 || e.LastN != 7 || e.Worker != "dead-1" || !strings.Contains(string(e.Body), "end_turn") {
		t.Fatalf("told as %+v %s", e, e.Body)
	}
	if len(f.notes("ran")) != 0 {
		t.Fatal("an ended prompt was run")
	}
	// Its record is retired: it has a time to live now.
	natstest.Eventually(t, 5*time.Second, "record retired", func() (bool, any) {
		r, err := f.b.Get(t.Context(), f.f.RunsBucket(), subjects.RunKey(untold))
		return err == nil && r.TTL > 0, r.TTL
	})
}

func TestAPromptCancelledWhileItWaitsNeverRuns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.session(nil)
	byRecord, _ := s.store("note ran")
	f.putRecord(byRecord, subjects.RunRecord{
		State: subjects.RunCancelled, Session: s.meta.Session, Principal: s.meta.Principal, Raider: bjorn, Lane: s.meta.Lane,
		Ended: time.Now(), Outcome: &subjects.Outcome{Prompt: byRecord, State: subjects.RunCancelled},
	})
	byMark, _ := s.store("note ran")
	f.putMark(byMark)
	after, _ := s.store("say after")
	f.run(nil)
	s.baton()
	f.want(after, subjects.RunCompleted, "", 10*time.Second)
	for _, p := range []subjects.PromptID{byRecord, byMark} {
		f.want(p, subjects.RunCancelled, "", time.Second)
		if n := s.outcomes(p); n != 1 {
			t.Fatalf("%d outcome events", n)
		}
	}
	// No owner wrote the first one's end.
	if e := s.events()[0]; e.Prompt != byRecord || e.Epoch != 0 || e.LastEpoch != 0 {
		t.Fatalf("told as %+v", e)
	}
	if len(f.notes("ran")) != 0 {
		t.Fatal("a cancelled prompt was run")
	}
}

func TestAMarkAloneCancelsAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1500*time.Millisecond)
	w := f.run(nil)
	s := f.session(nil)
	p, pid := s.live()
	begin := time.Now()
	f.putMark(p)
	f.want(p, subjects.RunCancelled, "", 5*time.Second)
	if took := time.Since(begin); took > 2*f.ackWait/3 {
		t.Fatalf("cancelled %v after the mark, ack_wait is %v", took, f.ackWait)
	}
	// The agent ended its turn itself and is there for the next one.
	if !alive(pid) || w.owned(s.meta.Lane) == nil {
		t.Fatal("the raider is gone")
	}
	next := s.prompt("say next")
	f.want(next, subjects.RunCompleted, "", 5*time.Second)
}

func TestALostWorkersPromptFailsAndNamesIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	s := f.session(nil)
	dead, _ := s.deadClaim()
	p, _ := s.store("note ran")
	f.putRecord(p, s.runningUnder(dead, 1))
	w := f.run(nil)
	s.baton()
	r := f.want(p, subjects.RunFailed, "worker "+string(dead.Instance)+" was lost", 10*time.Second)
	// Told under the new owner's epoch: what the lost one still sends is dropped.
	if r.Outcome.Worker != dead.Instance || r.Outcome.LastEpoch != w.owned(s.meta.Lane).owner().Epoch {
		t.Fatalf("outcome: %+v", r.Outcome)
	}
	s.emptied()
	if len(f.notes("ran")) != 0 || s.outcomes(p) != 1 {
		t.Fatalf("run %d times, told %d times", len(f.notes("ran")), s.outcomes(p))
	}
	// Who looks at the host sees what it took over, and from whom.
	for _, line := range []string{"lane taken over from a worker that does not answer", "from=" + string(dead.Instance), "lost=" + string(dead.Instance)} {
		if !strings.Contains(w.log.String(), line) {
			t.Errorf("the log lacks %q", line)
		}
	}
}

func TestALostWorkersPromptIsRetried(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	dead := subjects.Owner{Instance: "dead-1", Epoch: 1}
	f.run(func(c *Config) { c.Raiders[0].OnWorkerLoss, c.Raiders[0].MaxAttempts = "retry", 3 })
	for _, x := range []struct {
		attempt int
		state   subjects.RunState
		text    string
		want    int
	}{
		{1, subjects.RunCompleted, "", 2},
		{2, subjects.RunCompleted, "", 3},
		{3, subjects.RunFailed, "attempt 3 of 3 was the last", 3},
	} {
		// The first message of the own stream is another lane's: our epoch is above 1.
		f.session(nil).deadClaim()
		s := f.session(nil)
		p, _ := s.store("say again")
		f.putRecord(p, s.runningUnder(dead, x.attempt))
		s.baton()
		if r := f.want(p, x.state, x.text, 10*time.Second); r.Attempt != x.want {
			t.Fatalf("attempt %d after %d", r.Attempt, x.attempt)
		}
		s.emptied()
		if ran := len(s.said()) > 0; ran != (x.state == subjects.RunCompleted) {
			t.Fatalf("ran: %v", ran)
		}
	}
}

func TestGarbageDoesNotBlockTheLane(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.session(nil)
	backlog := f.f.Backlog(bjorn, s.meta.Lane, s.meta.Principal)
	put := func(h subjects.PromptHeader, body string) subjects.PromptID {
		h.Prompt, h.Kind = subjects.NewPrompt(), subjects.KindPrompt
		if h.Session == "" {
			h.Session = s.meta.Session
		}
		if h.Principal == "" {
			h.Principal = s.meta.Principal
		}
		if _, err := f.b.Publish(t.Context(), &nats.Msg{Subject: backlog, Header: h.Header(), Data: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		return h.Prompt
	}
	for _, h := range []nats.Header{nil, {subjects.HeaderKind: {"prompt"}}, {subjects.HeaderKind: {"strange"}}} {
		if _, err := f.b.Publish(t.Context(), &nats.Msg{Subject: backlog, Header: h, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	good := `{"sessionId":"x","prompt":[{"type":"text","text":"note ran"}]}`
	unknown := put(subjects.PromptHeader{Session: subjects.NewSession()}, good)
	stranger := put(subjects.PromptHeader{Principal: "stranger"}, good)
	noJSON := put(subjects.PromptHeader{}, "\x00\xff{[")
	array := put(subjects.PromptHeader{}, "[1]")
	noBlocks := put(subjects.PromptHeader{}, `{"prompt":{"a":1}}`)
	noPayload := put(subjects.PromptHeader{Payload: "prompt.missing"}, "")
	last, _ := s.store("say last")
	f.run(nil)
	s.baton()
	f.want(last, subjects.RunCompleted, "", 20*time.Second)
	f.want(unknown, subjects.RunRefused, "the session is gone", time.Second)
	f.want(stranger, subjects.RunRefused, "the session is gone", time.Second)
	f.want(noJSON, subjects.RunRefused, "params are no object", time.Second)
	f.want(array, subjects.RunRefused, "params are no object", time.Second)
	f.want(noPayload, subjects.RunFailed, "content is missing", time.Second)
	if r := f.record(noBlocks); !r.State.Ended() {
		t.Fatalf("prompt without blocks: %+v", r)
	}
	s.emptied()
	if len(f.notes("ran")) != 0 {
		t.Fatal("a stranger's prompt was run")
	}
}

func TestTheSweepPublishesAMissingBaton(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	f.run(nil)
	s := f.session(nil)
	// The front door died between its two publishes.
	p, _ := s.store("say hello")
	f.want(p, subjects.RunCompleted, "", 2*f.ackWait)
}

func TestTheSweepWakesAnOwnerThatMissedItsMessage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, time.Second)
	w := f.run(nil)
	s := f.session(nil)
	f.want(s.prompt("say first"), subjects.RunCompleted, "", 5*time.Second)
	l := s.warm(w)
	// Without republish the owner isn't told of the next prompt.
	info, err := f.b.JetStream().Stream(t.Context(), f.f.BacklogStream())
	if err != nil {
		t.Fatal(err)
	}
	c := info.CachedInfo().Config
	c.RePublish = nil
	if _, err := f.b.JetStream().UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p, _ := s.store("say second")
	r := f.want(p, subjects.RunCompleted, "", 2*f.ackWait)
	if r.Owner != l.owner() {
		t.Fatalf("run by %+v, the warm owner is %+v", r.Owner, l.owner())
	}
}
