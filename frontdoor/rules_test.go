package frontdoor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
)

// wired is a front door on a connection that can be made slow, or cut; its owner has another.
func wired(t *testing.T, ackWait time.Duration) (*natstest.Wire, *FrontDoor, *owner) {
	t.Helper()
	s, ob := natstest.Bus(t)
	way := natstest.NewWire(t, s.ClientURL())
	b := dialWith(t, way.URL(), natstest.Layout(1), ackWait)
	return way, door(t, b, nil), &owner{t: t, b: ob, f: ob.Fleet(), epoch: 7, id: "w1-abc"}
}

// The record is the truth: it is read when the link is back, though no event told of the end.
func TestRecordsAreReadOnAReconnect(t *testing.T) {
	t.Parallel()
	way, f, o := wired(t, 5*time.Minute) // nothing else reads it
	c := connect(t, f, ConnOptions{})
	c.prompt(c.session("bjorn"), "1", "one")
	r := o.take("bjorn", 1)
	r.says("a")
	c.await("agent a")
	link := f.b.Link()
	way.Cut(true)
	<-link.Done()
	r.record(ok())
	way.Cut(false)
	c.await("end 1")
	c.want("agent a", "end 1 "+endTurn)
}

// A prompt that is cancelled before its publish was acknowledged is in no backlog when it is.
func TestCancelledBeforeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	way, f, o := wired(t, time.Minute)
	c := connect(t, f, ConnOptions{})
	session := c.session("bjorn")
	way.Slow(500 * time.Millisecond)
	c.prompt(session, "1", "one")
	o.see("bjorn", 1) // stored, and not known here to be
	c.cancelSession(session)
	c.await("end 1")
	c.want(`end 1 {"stopReason":"cancelled"}`)
	way.Slow(0)
	eventually(t, func() string {
		if n := o.backlog(); n > 0 {
			return fmt.Sprintf("%d prompts wait", n)
		}
		return ""
	})
}

// The first ten places are told when they change, those behind once; and at most every 5 s.
func TestTheFirstTenPlaces(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	session := c.session("1bjorn")
	for n := range 13 {
		c.prompt(session, fmt.Sprint(n), fmt.Sprint(n))
	}
	running := make([]*running, 13)
	seq := uint64(0)
	for n := range running {
		running[n] = o.see("bjorn", seq+1)
		seq = running[n].seq
	}
	running[0].start()
	running[0].says("a")
	told := func(n, place int) string {
		return fmt.Sprintf(`info {"raiderfleet/queue":{"prompt":%q,"place":%d,"of":`, running[n].h.Prompt, place)
	}
	c.await(told(10, 10))
	c.await(told(11, 11))
	c.await(told(12, 12))
	running[0].end(ok())
	c.await("end 0")
	c.await(told(11, 10))
	first := time.Now()
	running[1].start()
	running[1].says("b")
	running[1].end(ok())
	c.await("end 1")
	c.await(told(12, 10))
	if d := time.Since(first); d < 4*time.Second {
		t.Errorf("told again after %v", d)
	}
	if strings.Contains(c.received(), told(12, 11)) {
		t.Error("a place behind the tenth was told when it changed")
	}
	c.cancelSession(session)
	c.await("end 12")
}
