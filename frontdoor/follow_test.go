package frontdoor

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func TestTurn(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	for i := range 3 {
		name := fmt.Sprint(i)
		c.prompt(s, name, "hello")
		r := o.take("bjorn", 1)
		r.user()
		r.says("a" + name)
		r.says("b" + name)
		r.end(ok())
		c.await("end " + name)
		if string(r.body) != promptParams(s, "hello") {
			t.Errorf("the prompt in the backlog is %s", r.body)
		}
	}
	c.want(
		"agent a0", "agent b0", "end 0 "+endTurn,
		"agent a1", "agent b1", "end 1 "+endTurn,
		"agent a2", "agent b2", "end 2 "+endTurn)
}

// The response comes after all of the turn's updates and before the next turn's, in
// whatever order they are stored.
func TestStoredOutOfOrder(t *testing.T) {
	t.Parallel()
	_, o, c, _, r := begun(t)
	r.textN(7, 1, "a")
	r.textN(7, 3, "c")
	r.textN(7, 1, "a")
	r.textN(7, 2, "b")
	r.textN(7, 3, "c")
	o.n = 5
	out := r.record(ok())
	r.tell(out)
	r.textN(7, 5, "e")
	r.textN(7, 4, "d")
	c.await("end 1")
	c.want("agent a", "agent b", "agent c", "agent d", "agent e", "end 1 "+endTurn)
}

// Updates that the worker has gathered reach the client one by one, with their text as it
// is, live and in a load.
func TestGatheredUpdates(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	r.user()
	var body []byte
	for _, text := range []string{"a", "b", "c\nd"} {
		body = append(append(body, subjects.TextChunk(s, "agent_message_chunk", "", text)...), '\n')
	}
	o.n++
	r.event(o.epoch, o.n, subjects.EventUpdate, body[:len(body)-1])
	r.says("e")
	r.end(ok())
	c.await("end 1")
	c.want("agent a", "agent b", "agent c\nd", "agent e", "end 1 "+endTurn)
	d := connect(t, f, ConnOptions{})
	d.load(s)
	d.want("user one", "agent a", "agent b", "agent c\nd", "agent e", "loaded")
}

func TestLostOwnerIsNotHeard(t *testing.T) {
	t.Parallel()
	_, o, c, _, r := begun(t)
	r.textN(7, 1, "old")
	r.textN(9, 1, "new")
	r.textN(7, 2, "late")
	r.textN(9, 2, "er")
	o.epoch, o.n = 9, 2
	r.end(ok())
	c.await("end 1")
	c.want("agent old", "agent new", "agent er", "end 1 "+endTurn)
}

// An outcome whose event is never stored is found in the record, after the events that
// only EVENTS has.
func TestOutcomeFromTheRecord(t *testing.T) {
	t.Parallel()
	_, o, c, s, r := begun(t)
	r.says("a")
	r.record(ok())
	c.await("end 1") // after ack_wait
	r.says("late")
	c.prompt(s, "2", "two")
	r2 := o.take("bjorn", r.seq+1)
	r2.says("b")
	r2.end(ok())
	c.await("end 2")
	c.want("agent a", "end 1 "+endTurn, "agent b", "end 2 "+endTurn)
}

// Live events that were lost are read from EVENTS when the next one shows the gap.
func TestLostLiveEvents(t *testing.T) {
	t.Parallel()
	f, o, c, s, r := begun(t)
	r.says("a")
	c.await("agent a")
	var a *attachment
	f.mu.Lock()
	for conn := range f.conns {
		a = conn.find(s)
	}
	f.mu.Unlock()
	// The server is told that nobody listens, and then that somebody does again.
	if err := a.follow.sub.AutoUnsubscribe(1); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"b", "c", "d"} {
		r.says(text)
	}
	sub, err := o.b.Conn().Subscribe(o.f.Live(s), func(m *nats.Msg) { a.follow.live <- m })
	if err != nil {
		t.Fatal(err)
	}
	r.end(ok())
	c.await("end 1")
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	c.want("agent a", "agent b", "agent c", "agent d", "end 1 "+endTurn)
}

// A client that does not read: nothing is kept for it beyond a bound, and it misses
// nothing.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	c.hold()
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	const updates = liveMessages + 2000
	js := o.b.JetStream()
	for i := 1; i <= updates; i++ {
		h := subjects.EventHeader{Kind: subjects.EventUpdate, Prompt: r.h.Prompt, Epoch: o.epoch, N: uint64(i)}
		body := subjects.TextChunk(s, "agent_message_chunk", "", fmt.Sprint(i))
		_, err := js.PublishMsgAsync(&nats.Msg{Subject: o.f.Event(s), Header: h.Header(), Data: body})
		o.must(err)
		if i%500 == 0 {
			<-js.PublishAsyncComplete() // as a worker, which bounds what is in flight
		}
	}
	<-js.PublishAsyncComplete()
	o.n = updates
	r.end(ok())
	c.release()
	c.await("end 1")
	want := make([]string, 0, updates+1)
	for i := 1; i <= updates; i++ {
		want = append(want, fmt.Sprintf("agent %d", i))
	}
	c.want(append(want, "end 1 "+endTurn)...)
	for conn := range f.conns {
		if n, err := conn.find(s).follow.sub.Dropped(); err != nil || n == 0 {
			t.Errorf("%d events were dropped (%v): the test tests nothing", n, err)
		}
	}
}

// Attached by a prompt when the last event says nothing of the owner, which is warm.
func TestAttachBesideAWarmOwner(t *testing.T) {
	t.Parallel()
	f, o, c, s, r := begun(t)
	for range 5 {
		r.says("a")
	}
	r.end(ok())
	c.await("end 1")
	c.prompt(s, "2", "two")
	waiting := o.see("bjorn", r.seq+1)
	c.cancelSession(s)
	c.await("end 2 " + stoppedTurn)
	second := connect(t, f, ConnOptions{})
	second.prompt(s, "3", "three")
	r = o.take("bjorn", waiting.seq+1)
	r.says("b")
	second.await("agent b") // at once, not when the turn ends
	r.end(ok())
	second.await("end 3")
	second.want("agent b", "end 3 "+endTurn)
}

// The server goes away in mid-turn; what happened meanwhile is read when it is back.
func TestServerRestartsInMidTurn(t *testing.T) {
	t.Parallel()
	node := natstest.Single(t)
	layout := natstest.Layout(1)
	layout.Memory = false
	b := dial(t, node.URL(), layout)
	if err := b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := door(t, b, nil)
	o := &owner{t: t, b: dial(t, node.URL(), layout), f: b.Fleet(), epoch: 7, id: "w1-abc"}
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	r.says("a")
	c.await("agent a")
	link := o.b.Link()
	node.Stop()
	<-link.Done()
	c.prompt(s, "2", "two") // is published when the server is back
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	o.must(o.b.WaitUp(t.Context()))
	r.says("b")
	r.end(ok())
	c.await("end 1")
	r = o.take("bjorn", r.seq+1)
	r.says("c")
	r.end(ok())
	c.await("end 2")
	c.want("agent a", "agent b", "end 1 "+endTurn, "agent c", "end 2 "+endTurn)
}

// Raw JSON passes as it came; a body by reference too; one that is gone is noted.
func TestBodies(t *testing.T) {
	t.Parallel()
	_, o, c, s, r := begun(t)
	o.must(o.b.PutPayload(t.Context(), "large", subjects.TextChunk(s, "agent_message_chunk", "", "from the store")))
	for _, ref := range []string{"large", "gone"} {
		o.n++
		h := subjects.EventHeader{Kind: subjects.EventUpdate, Prompt: r.h.Prompt, Epoch: o.epoch, N: o.n, Payload: ref}
		_, err := o.b.Publish(t.Context(), &nats.Msg{Subject: o.f.Event(s), Header: h.Header()})
		o.must(err)
	}
	o.n++
	r.event(o.epoch, o.n, "newer kind", []byte("{}"))
	o.n++
	r.event(o.epoch, o.n, subjects.EventNote, object(subjects.Note{Type: subjects.SessionError, Error: "no state"}))
	r.end(ok())
	c.await("end 1")
	c.await(`info {"raiderfleet/note":{"type":"session.error","error":"no state"}}`)
	c.want("agent from the store", "agent_thought_chunk [a part of this conversation is not available any more]", "end 1 "+endTurn)
}

// A link that is down when a body is read says nothing about the body: the turn is shown
// whole when it is back, however long that takes.
func TestBodyBehindALostLink(t *testing.T) {
	t.Parallel()
	s, ob := natstest.Bus(t)
	d := newDeaf(t, s.Addr().String())
	f := door(t, dial(t, "nats://"+d.l.Addr().String(), natstest.Layout(1)), nil)
	o := &owner{t: t, b: ob, f: ob.Fleet(), epoch: 7, id: "w1-abc"}
	c := connect(t, f, ConnOptions{})
	session := c.session("bjorn")
	c.prompt(session, "1", "one")
	r := o.take("bjorn", 1)
	o.must(ob.PutPayload(t.Context(), "large", subjects.TextChunk(session, "agent_message_chunk", "", "from the store")))
	d.cutAfter("$JS.API.STREAM.MSG.GET.OBJ_") // when the body is asked for
	o.n++
	h := subjects.EventHeader{Kind: subjects.EventUpdate, Prompt: r.h.Prompt, Epoch: o.epoch, N: o.n, Payload: "large"}
	_, err := ob.Publish(t.Context(), natsMsg(o.f.Event(session), h, nil))
	o.must(err)
	eventually(t, func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.cut {
			return "the body was not asked for"
		}
		return ""
	})
	sleep(t.Context(), 2*natstest.AckWait) // the cut is to be longer than one read is tried for
	r.end(ok())
	d.set(false)
	c.await("end 1")
	c.want("agent from the store", "end 1 "+endTurn)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	cases := []struct {
		out  subjects.Outcome
		want string
	}{
		{subjects.Outcome{State: subjects.RunCompleted, Result: []byte(`{"stopReason":"max_tokens","x":1.0}`)}, `{"stopReason":"max_tokens","x":1.0}`},
		{subjects.Outcome{State: subjects.RunCompleted, StopReason: "refusal"}, `{"stopReason":"refusal"}`},
		{subjects.Outcome{State: subjects.RunCancelled}, `{"stopReason":"cancelled"}`},
		{subjects.Outcome{State: subjects.RunFailed, Error: &subjects.RunError{Message: "broke"}}, `broke (code -32000)`},
		{subjects.Outcome{State: subjects.RunRefused, Error: &subjects.RunError{Message: "no such directory"}}, `no such directory (code -32000)`},
	}
	for i, tc := range cases {
		name := fmt.Sprint(i)
		c.prompt(s, name, "x")
		r := o.take("bjorn", 1)
		r.says("t")
		r.end(tc.out)
		if got := c.await("end " + name); got != "end "+name+" "+tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
	e := promptError(subjects.Outcome{
		Prompt: "p1", State: subjects.RunFailed, Worker: "w1-a",
		Error: &subjects.RunError{Message: "m", Code: -5, Data: []byte(`{"k":1}`)},
	})
	if want := `{"code":-5,"data":{"k":1},"raiderfleet":{"outcome":"failed","prompt":"p1","worker":"w1-a"}}`; string(e.Data) != want {
		t.Errorf("data is %s", e.Data)
	}
}

// Two clients of one session: each sees what the other does.
func TestSecondClient(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	first, second := connect(t, f, ConnOptions{}), connect(t, door(t, o.b, nil), ConnOptions{})
	s := first.session("bjorn")
	second.prompt(s, "2", "from the second")
	r := o.take("bjorn", 1)
	r.user()
	r.says("a")
	r.end(ok())
	second.await("end 2")
	first.await("agent a")
	first.prompt(s, "1", "from the first")
	r = o.take("bjorn", r.seq+1)
	r.user()
	r.says("b")
	r.end(ok())
	first.await("end 1")
	second.await("agent b")
	first.want("user from the second", "agent a", "agent b", "end 1 "+endTurn)
	second.want("agent a", "end 2 "+endTurn, "user from the first", "agent b")
}

func TestManyClientsWithTheSameIDs(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	clients := make([]*client, 50)
	for i := range clients {
		clients[i] = connect(t, f, ConnOptions{})
		clients[i].prompt(clients[i].session("bjorn"), "1", fmt.Sprint(i))
	}
	from := uint64(1)
	for range clients {
		r := o.take("bjorn", from)
		from = r.seq + 1
		o.n = 0
		r.says("for " + string(r.h.Session))
		r.end(ok())
	}
	for _, c := range clients {
		c.await("end 1 " + endTurn)
		if got := len(c.log); got != 2 {
			t.Errorf("received %s", c.received())
		}
	}
	if n := f.Connections(); n != len(clients) || !f.Busy() {
		t.Errorf("%d connections", n)
	}
}
