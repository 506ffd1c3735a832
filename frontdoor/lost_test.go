package frontdoor

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/natstest"
)

// deleted takes the fleet's streams away whose names have one of the endings, as a server
// does that starts with an empty store; "" is all of them.
func (o *owner) deleted(endings ...string) {
	o.t.Helper()
	for _, c := range o.b.Layout().Streams() {
		for _, end := range endings {
			if strings.HasSuffix(c.Name, end) {
				o.must(o.b.JetStream().DeleteStream(o.t.Context(), c.Name))
			}
		}
	}
}

// kept runs a front door until the test ends.
func kept(t *testing.T, f *FrontDoor) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// NATS comes back without its store: who waits for a prompt is told so, and a front door
// that has declared the fleet does it again, without a worker.
func TestNATSHasLostItsStore(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	kept(t, f)
	c := connect(t, f, ConnOptions{})
	a, b := c.session("bjorn"), c.session("bjorn")
	c.prompt(a, "1", "one")
	o.take("bjorn", 1).says("x")
	c.await("agent x")
	c.prompt(b, "2", "two")
	o.see("bjorn", 2)
	o.deleted("")
	for _, name := range []string{"1", "2"} {
		if got := c.await("end " + name); !strings.Contains(got, "-32000") || !strings.Contains(got, "NATS has lost this prompt with its store") {
			t.Errorf("answered %s", got)
		}
	}
	// All is there again.
	c.prompt(c.session("bjorn"), "3", "three")
	o.take("bjorn", 1).end(ok())
	c.await("end 3 " + endTurn)
}

// A front door that has not declared the fleet may not have its layout.
func TestAJoinedFrontDoorDeclaresNothing(t *testing.T) {
	t.Parallel()
	server, ob := natstest.Bus(t)
	o := &owner{t: t, b: ob, f: ob.Fleet(), epoch: 7, id: "w1-abc"}
	f := door(t, dial(t, server.ClientURL(), natstest.Layout(1)), nil)
	kept(t, f)
	c := connect(t, f, ConnOptions{})
	o.deleted("")
	if _, err := c.try("session/new", `{"cwd":"/w","mcpServers":[]}`); err == nil || !strings.Contains(err.Error(), "the fleet's NATS does not answer") {
		t.Errorf("session/new: %v", err)
	}
	if _, err := ob.LastSeq(t.Context(), o.f.BacklogStream()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream: %v", err)
	}
}

// Of a prompt whose message or record is there nobody says that it is lost.
func TestAPromptThatMayStillRunIsNotLost(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	a, b := c.session("bjorn"), c.session("bjorn")
	c.prompt(a, "1", "one")
	r := o.take("bjorn", 1)
	r.says("x")
	c.await("agent x")
	o.deleted("BACKLOG") // its record says that it runs
	o.must(o.b.Declare(t.Context()))
	c.prompt(b, "2", "two") // under the first one's sequence
	waits := o.see("bjorn", 1)
	natstest.Stays(t, 3*natstest.AckWait, "both wait", func() (bool, any) {
		return !strings.Contains(c.received(), "end "), c.received()
	})
	r.end(ok())
	c.await("end 1 " + endTurn)
	waits.start()
	waits.end(ok())
	c.await("end 2 " + endTurn)
}
