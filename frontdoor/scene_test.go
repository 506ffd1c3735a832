package frontdoor

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// begun is a client whose prompt "1" the owner runs.
func begun(t *testing.T) (f *FrontDoor, o *owner, c *client, s subjects.SessionID, r *running) {
	t.Helper()
	f, o = setup(t, nil)
	c = connect(t, f, ConnOptions{})
	s = c.session("bjorn")
	c.prompt(s, "1", "one")
	return f, o, c, s, o.take("bjorn", 1)
}

// controlled answers the lane's control requests and hands them on.
func (o *owner) controlled(lane subjects.LaneID) <-chan subjects.ControlRequest {
	o.t.Helper()
	out := make(chan subjects.ControlRequest, 100)
	sub, err := o.b.Conn().Subscribe(o.f.Control(lane), func(m *nats.Msg) {
		var req subjects.ControlRequest
		if err := json.Unmarshal(m.Data, &req); err != nil {
			o.t.Errorf("control request: %v", err)
		}
		_ = m.Respond(object(subjects.ControlReply{Decided: req.Op == subjects.ControlClose})) // no raider is left
		out <- req
	})
	o.must(err)
	o.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return out
}

// next waits for what comes next.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case x := <-from:
		return x
	case <-time.After(patience):
		var none T
		t.Fatalf("no %T came", none)
		return none
	}
}

func (o *owner) backlog() int {
	o.t.Helper()
	counts, err := o.b.Counts(o.t.Context(), o.f.BacklogStream(), o.f.BacklogAll())
	o.must(err)
	n := 0
	for _, c := range counts {
		n += int(c)
	}
	return n
}

// eventually polls until check returns "".
func eventually(t *testing.T, check func() string) {
	t.Helper()
	natstest.Eventually(t, patience, "in vain", func() (bool, any) {
		last := check()
		return last == "", last
	})
}
