package frontdoor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// as is a client of a principal at a front door.
func as(t *testing.T, f *FrontDoor, p subjects.Principal) *client {
	t.Helper()
	return connect(t, f, ConnOptions{Principal: p})
}

// Nobody sees another principal's session, at any front door and while it is in use
// there: it is answered like one that never was, and nothing of it is touched.
func TestAnotherPrincipalsSession(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	ada := as(t, f, "ada")
	s := ada.session("bjorn")
	ada.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	control := o.controlled(r.lane)
	r.says("secret")
	ada.await("agent secret")
	ask := r.asks()
	question := ada.question(0)
	ada.prompt(s, "2", "two")
	waits := o.see("bjorn", r.seq+1)

	for name, door := range map[string]*FrontDoor{"same front door": f, "another front door": door(t, o.b, nil)} {
		for _, p := range []subjects.Principal{"bob", subjects.LocalPrincipal} {
			bob := as(t, door, p)
			never := subjects.NewSession()
			for method, params := range map[string]string{
				"session/load":   `{"sessionId":%q,"cwd":"/w","mcpServers":[]}`,
				"session/prompt": `{"sessionId":%q,"prompt":[{"type":"text","text":"let me in"}]}`,
				"session/close":  `{"sessionId":%q}`,
			} {
				_, err := bob.try(method, fmt.Sprintf(params, s))
				_, unknown := bob.try(method, fmt.Sprintf(params, never))
				var got, want *rpc.Error
				if !errors.As(err, &got) || !errors.As(unknown, &want) {
					t.Fatalf("%s, %s of %s: %v; of no session: %v", name, method, p, err, unknown)
				}
				if got.Code != rpc.CodeNotFound || got.Message != want.Message || strings.ReplaceAll(string(got.Data), string(s), string(never)) != string(want.Data) {
					t.Errorf("%s, %s of %s: %v %s; of no session: %v %s", name, method, p, got, got.Data, want, want.Data)
				}
			}
			bob.cancelSession(s)
			bob.call("session/cancel", fmt.Sprintf(`{"sessionId":%q}`, s))
			// Behind both cancels: what they do has been done.
			bob.stop()
			bob.want()
		}
	}
	// Nothing was asked of the owner, and nothing is marked; the ask is still the owner's.
	select {
	case req := <-control:
		t.Errorf("the owner was asked %+v", req)
	default:
	}
	for _, p := range []subjects.PromptID{r.h.Prompt, waits.h.Prompt} {
		if _, err := o.b.Get(t.Context(), o.f.RunsBucket(), subjects.CancelKey(p)); err == nil {
			t.Errorf("prompt %s is marked", p)
		}
	}
	if n := o.backlog(); n != 2 {
		t.Errorf("%d prompts in the backlog", n)
	}
	o.must(question.Reply(json.RawMessage(`{"outcome":{"outcome":"selected","optionId":"y"}}`)))
	if req := next(t, control); req.Op != subjects.ControlAnswer || req.Ask != ask.Ask || req.Principal != "ada" {
		t.Errorf("control request %+v", req)
	}
	r.askDone(ask.Ask)
	r.end(ok())
	ada.await("end 1 " + endTurn)
	waits.start()
	waits.end(ok())
	ada.await("end 2 " + endTurn)
}

// Principals share a slot: each sees its own conversation, and of the others only how
// many are before it.
func TestASlotOfSeveralPrincipals(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	ada, bob := as(t, f, "ada"), as(t, f, "bob")
	a, b := ada.session("1bjorn"), bob.session("1bjorn")
	ada.prompt(a, "1", "of ada")
	first := o.take("bjorn", 1)
	control := o.controlled(first.lane)
	first.user()
	first.says("for ada")
	ada.await("agent for ada")
	bob.prompt(b, "2", "of bob")
	second := o.see("bjorn", first.seq+1)
	ada.prompt(a, "3", "of ada too")
	third := o.see("bjorn", second.seq+1)
	if first.lane != second.lane || second.lane != third.lane || second.h.Principal != "bob" {
		t.Fatalf("lanes %s, %s, %s; principal %s", first.lane, second.lane, third.lane, second.h.Principal)
	}
	bob.await(fmt.Sprintf(`info {"raiderfleet/queue":{"prompt":%q,"place":1,"of":`, second.h.Prompt))

	// Cancelling and closing one's own session leaves the other's prompts alone.
	bob.cancelSession(b)
	bob.await("end 2 " + stoppedTurn)
	bob.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, b))
	for len(control) > 0 {
		if req := <-control; req.Session != b || req.Principal != "bob" {
			t.Errorf("the owner was asked %+v", req)
		}
	}
	first.end(ok())
	ada.await("end 1 " + endTurn)
	third.start()
	third.says("for ada too")
	third.end(ok())
	ada.await("end 3 " + endTurn)
	ada.want("agent for ada", "end 1 "+endTurn, "agent for ada too", "end 3 "+endTurn)
	bob.want("end 2 " + stoppedTurn)
	for _, hidden := range []string{string(a), string(first.h.Prompt), string(third.h.Prompt), "ada"} {
		if strings.Contains(bob.received(), hidden) {
			t.Errorf("bob sees %s: %s", hidden, bob.received())
		}
	}
}
