package frontdoor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

func (o *owner) meta(s subjects.SessionID) subjects.SessionMeta {
	o.t.Helper()
	var m subjects.SessionMeta
	_, err := o.b.GetJSON(o.t.Context(), o.f.SessionsBucket(), subjects.MetaKey(subjects.LocalPrincipal, s), &m)
	o.must(err)
	return m
}

// leftClosing is a session with a running and a waiting prompt whose front door died just
// after it had begun to close it.
func leftClosing(t *testing.T) (*FrontDoor, *owner, subjects.SessionID, *running, *running) {
	t.Helper()
	f, o := setup(t, nil)
	dead := connect(t, f, ConnOptions{GoneAtEOF: true})
	s := dead.session("bjorn")
	dead.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	dead.prompt(s, "2", "two")
	waits := o.see("bjorn", r.seq+1)
	m := o.meta(s)
	m.State = subjects.SessionClosing
	_, err := o.b.SetJSON(t.Context(), o.f.SessionsBucket(), subjects.MetaKey(m.Principal, s), m, 0)
	o.must(err)
	dead.stop()
	return door(t, o.b, nil), o, s, r, waits
}

// Whoever loads a session that a front door left closing finishes that, and has it open.
func TestLoadFinishesAClose(t *testing.T) {
	t.Parallel()
	f, o, s, r, waits := leftClosing(t)
	control := o.controlled(r.lane)
	c := connect(t, f, ConnOptions{})
	loaded := make(chan struct{})
	go func() { c.load(s); close(loaded) }()
	if req := next(t, control); req.Op != subjects.ControlCancel || req.Prompt != r.h.Prompt {
		t.Errorf("control request %+v", req)
	}
	if state := o.meta(s).State; state != subjects.SessionClosing {
		t.Errorf("state %s while something runs", state)
	}
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	for req := next(t, control); req.Op != subjects.ControlClose; req = next(t, control) {
	}
	next(t, loaded)
	if state := o.meta(s).State; state != subjects.SessionOpen {
		t.Errorf("state %s after the load", state)
	}
	var rec subjects.RunRecord
	_, err := o.b.GetJSON(t.Context(), o.f.RunsBucket(), subjects.RunKey(waits.h.Prompt), &rec)
	o.must(err)
	if rec.State != subjects.RunCancelled || rec.Owner.Instance != "" || o.backlog() != 0 {
		t.Errorf("the waiting prompt: %+v; %d prompts in the backlog", rec, o.backlog())
	}
	c.prompt(s, "3", "three")
	third := o.take("bjorn", waits.seq+1)
	third.end(ok())
	c.await("end 3 " + endTurn)
}

// What does not end in time keeps the session closing: the load says so.
func TestLoadOfASessionThatIsBeingClosed(t *testing.T) {
	t.Parallel()
	f, _, s, r, _ := leftClosing(t)
	c := connect(t, f, ConnOptions{})
	_, err := c.try("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/w","mcpServers":[]}`, s))
	var got *rpc.Error
	if !errors.As(err, &got) || got.Code != codeRun || !strings.Contains(got.Message, "being closed") {
		t.Fatalf("answered %v", err)
	}
	// It tells it from ACP's 'authentication required'.
	if want := fmt.Sprintf(`{"raiderfleet":{"session":%q,"state":"closing"},"sessionId":%q}`, s, s); string(got.Data) != want {
		t.Errorf("data is %s, want %s", got.Data, want)
	}
	if _, err := c.try("session/prompt", promptParams(s, "three")); err == nil || err.Error() != sessionClosed(s).Error() {
		t.Errorf("a prompt is answered %v", err)
	}
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	c.load(s)
}

// A client whose session was closed at another front door is told so, as any client is,
// and at once: its prompt never waits for a turn.
func TestPromptForASessionClosedElsewhere(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	here, there := connect(t, f, ConnOptions{}), connect(t, door(t, o.b, nil), ConnOptions{})
	s := here.session("1bjorn")
	there.load(s)
	there.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	r.end(ok())
	there.await("end 1 " + endTurn)
	// The lane is busy with another session.
	other := here.session("1bjorn")
	here.prompt(other, "other", "x")
	busy := o.take("bjorn", r.seq+1)
	here.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))

	want := sessionClosed(s).Error()
	for _, name := range []string{"2", "3"} { // held from before; and attached anew
		there.prompt(s, name, "too late")
		if got := there.await("end " + name); got != "end "+name+" "+want {
			t.Errorf("answered %s, want %s", got, want)
		}
		if n := o.backlog(); n != 1 {
			t.Errorf("%d prompts in the backlog", n)
		}
	}
	there.load(s)
	there.prompt(s, "4", "four")
	fourth := o.see("bjorn", busy.seq+1)
	busy.end(ok())
	here.await("end other " + endTurn)
	fourth.start()
	fourth.end(ok())
	there.await("end 4 " + endTurn)
	there.want("loaded", "end 1 "+endTurn, "end 2 "+want, "end 3 "+want, "loaded", "end 4 "+endTurn)
}
