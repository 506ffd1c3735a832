package frontdoor

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// small is a fleet in whose lanes two prompts may wait.
func small(t *testing.T) (*FrontDoor, *owner) {
	t.Helper()
	s := natstest.Server(t)
	layout := natstest.Layout(1)
	layout.MaxBacklog = 2
	b := dial(t, s.ClientURL(), layout)
	if err := b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return door(t, b, func(c *Config) { c.MaxBacklog = 2 }), &owner{t: t, b: b, f: b.Fleet(), epoch: 7, id: "w1-abc"}
}

// On a slot each principal has its own bound: nobody shuts the others out.
func TestBacklogFullForAPrincipal(t *testing.T) {
	t.Parallel()
	f, o := small(t)
	ada, bob := as(t, f, "ada"), as(t, f, "bob")
	a, again, b := ada.session("1bjorn"), ada.session("1bjorn"), bob.session("1bjorn")
	ada.prompt(a, "1", "one")
	first := o.take("bjorn", 1)
	ada.prompt(again, "2", "two")
	second := o.see("bjorn", first.seq+1)
	// All sessions of a principal count together.
	for name, session := range map[string]subjects.SessionID{"3": a, "4": again} {
		ada.prompt(session, name, "too many")
		if got := ada.await("end " + name); !strings.Contains(got, "-32000") || !strings.Contains(got, "backlog full: 2 of your prompts wait for 1bjorn") {
			t.Errorf("answered %s", got)
		}
	}
	bob.prompt(b, "5", "five")
	third := o.see("bjorn", second.seq+1)
	if third.h.Principal != "bob" || third.lane != first.lane {
		t.Fatalf("%+v waits in %s", third.h, third.lane)
	}
	bob.await(fmt.Sprintf(`info {"raiderfleet/queue":{"prompt":%q,"place":2,"of":3}}`, third.h.Prompt))
	// Another seat is another lane.
	c := ada.session("2bjorn")
	ada.prompt(c, "6", "six")
	for i, r := range []*running{first, second, third, o.see("bjorn", third.seq+1)} {
		if i > 0 {
			r.start()
		}
		r.end(ok())
	}
	for _, name := range []string{"1", "2", "6"} {
		ada.await("end " + name + " " + endTurn)
	}
	bob.await("end 5 " + endTurn)
}

func TestBacklogFull(t *testing.T) {
	t.Parallel()
	f, o := small(t)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	c.prompt(s, "2", "two")
	o.see("bjorn", r.seq+1)
	refused := o.told(subjects.RaiderRefused)
	c.prompt(s, "3", "three")
	if got := c.await("end 3"); !strings.Contains(got, "backlog full: 2 prompts wait for this session") || !strings.Contains(got, "-32000") {
		t.Errorf("answered %s", got)
	}
	if e := next(t, refused); e.Session != s || e.Outcome != subjects.RunRefused || !strings.Contains(e.Error, "backlog full") || e.Lane != r.lane {
		t.Errorf("event %+v", e)
	}
	r.end(ok())
	c.await("end 1")
	r = o.take("bjorn", r.seq+1)
	r.end(ok())
	c.await("end 2")
}

// A prompt for which there is no space is refused at once, with its size: nobody has to wait
// for a person who makes room. What was not accepted does not run.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	server, b := natstest.Bus(t)
	f, o := door(t, b, nil), &owner{t: t, b: b, f: b.Fleet(), epoch: 7, id: "w1-abc"}
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	empty := natstest.Fill(t, server)
	small, large := promptParams(s, "one"), promptParams(s, strings.Repeat("x", b.MaxInline()+1))
	for name, params := range map[string]string{"1": small, "2": large} {
		c.prompt(s, name, strings.TrimSuffix(strings.SplitAfter(params, `"text":"`)[1], `"}]}`))
		if got := c.await("end " + name); !strings.Contains(got, "-32000") || !strings.Contains(got, fmt.Sprintf("no space left for the prompt's %d bytes", len(params))) {
			t.Errorf("answered %s", got)
		}
	}
	if _, err := c.try("session/new", `{"cwd":"/w","mcpServers":[]}`); err == nil || !strings.Contains(err.Error(), "the fleet's NATS has no space left") {
		t.Errorf("session/new: %v", err)
	}
	empty()
	c.prompt(s, "3", "three")
	r := o.take("bjorn", 1)
	if n := o.backlog(); n != 1 || string(r.body) != promptParams(s, "three") {
		t.Errorf("%d prompts wait, the first is %s", n, r.body)
	}
	r.end(ok())
	c.await("end 3 " + endTurn)
}

// A large prompt that does not fit into a bounded PAYLOADS is refused at once.
func TestPayloadsFull(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	stream, err := o.b.JetStream().Stream(t.Context(), "OBJ_"+o.f.PayloadsBucket())
	o.must(err)
	config := stream.CachedInfo().Config
	config.MaxBytes = 64 << 10
	_, err = o.b.JetStream().UpdateStream(t.Context(), config)
	o.must(err)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	text := strings.Repeat("x", o.b.MaxInline()+1)
	c.prompt(s, "1", text)
	if got := c.await("end 1"); !strings.Contains(got, fmt.Sprintf("the prompt has %d bytes, and PAYLOADS", len(promptParams(s, text)))) {
		t.Errorf("answered %s", got)
	}
}

// NATS answers no write, as one with a full disk does that nobody looks after: the client is
// told in bounded time that nobody knows, and the prompt is withdrawn when that can be stored.
func TestNATSTakesNoWrites(t *testing.T) {
	t.Parallel()
	server, b := natstest.Bus(t)
	f, o := door(t, b, nil), &owner{t: t, b: b, f: b.Fleet(), epoch: 7, id: "w1-abc"}
	f.submitFor = time.Second
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	lost, err := b.Conn().SubscribeSync("lost.>")
	o.must(err)
	o.must(b.Conn().Flush())
	silent := map[string]string{o.f.BacklogAll(): "lost.backlog.>", "$KV." + o.f.RunsBucket() + ".>": "lost.runs.>"}
	for from, to := range silent {
		o.must(server.GlobalAccount().AddMapping(from, to))
	}
	c.prompt(s, "1", "one")
	m, err := lost.NextMsg(patience)
	o.must(err)
	prompt := subjects.PromptID(m.Header.Get(subjects.HeaderPrompt))
	if got := c.await("end 1"); !strings.Contains(got, "-32000") || !strings.Contains(got, "whether the prompt will run is not known") {
		t.Errorf("answered %s", got)
	}
	for from := range silent {
		server.GlobalAccount().RemoveMapping(from)
	}
	eventually(t, func() string {
		var rec subjects.RunRecord
		if _, err := b.GetJSON(t.Context(), o.f.RunsBucket(), subjects.RunKey(prompt), &rec); err != nil || rec.State != subjects.RunCancelled {
			return fmt.Sprintf("the record is %+v, %v", rec, err)
		}
		return ""
	})
	c.prompt(s, "2", "two")
	o.take("bjorn", 1).end(ok())
	c.await("end 2 " + endTurn)
}

// Large prompts go to the object store first.
func TestLargePrompt(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	text := strings.Repeat("x", o.b.MaxInline()+1)
	c.prompt(s, "1", text)
	r := o.take("bjorn", 1)
	if r.h.Payload == "" || len(r.body) > 0 {
		t.Errorf("%d bytes in the backlog, payload %q", len(r.body), r.h.Payload)
	}
	body, err := o.b.Body(t.Context(), r.h.Payload, r.body)
	o.must(err)
	if string(body) != promptParams(s, text) {
		t.Errorf("%d bytes in the store", len(body))
	}
	r.end(ok())
	c.await("end 1")
}

// told hands on the fleet events of one kind that come from now on.
func (o *owner) told(kind subjects.FleetEventKind) <-chan subjects.FleetEvent {
	o.t.Helper()
	out := make(chan subjects.FleetEvent, 100)
	sub, err := o.b.Conn().Subscribe(o.f.FleetEvent(kind), func(m *nats.Msg) {
		var e subjects.FleetEvent
		if err := json.Unmarshal(m.Data, &e); err != nil || e.Kind != kind || e.Time.IsZero() {
			o.t.Errorf("fleet event %s: %v", m.Data, err)
		}
		out <- e
	})
	o.must(err)
	o.t.Cleanup(func() { _ = sub.Unsubscribe() })
	o.must(o.b.Conn().Flush())
	return out
}

// What is published: header, baton, fleet event.
func TestSubmission(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	queued := o.told(subjects.RaiderQueued)
	c := connect(t, f, ConnOptions{})
	s := c.session("2bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	if r.h.Session != s || r.h.Principal != "local" || r.h.Kind != subjects.KindPrompt || r.h.Origin.FrontDoor != f.Instance() || r.lane != "slot-2bjorn" {
		t.Errorf("header %+v in lane %s", r.h, r.lane)
	}
	e := next(t, queued)
	if e.Prompt != r.h.Prompt || e.Lane != r.lane || e.Session != s || e.Raider != "bjorn" {
		t.Errorf("event %+v", e)
	}
	eventually(t, func() string {
		have, err := o.b.Subjects(t.Context(), o.f.ReadyStream(), o.f.ReadyAll())
		if err == nil && len(have) == 1 && have[0] == o.f.Ready("bjorn", subjects.AnyClass, r.lane) {
			return ""
		}
		return fmt.Sprintf("batons %v, %v", have, err)
	})
	c.prompt(s, "2", "two") // the baton is there already
	r.end(ok())
	c.await("end 1")
	r = o.take("bjorn", r.seq+1)
	r.end(ok())
	c.await("end 2")
}

// deaf is a connection to NATS that can be cut without a word.
type deaf struct {
	l     net.Listener
	mu    sync.Mutex // guards the rest
	conns []net.Conn
	cut   bool
	after string // what passes on the way there begins the cut
}

// deafAckWait is so long that a link whose way back is cut is not given up at once.
const deafAckWait = 20 * time.Second

// TestUnacknowledged cuts the way back: the prompt is stored, its acknowledgement is
// lost. The same prompt is published again when there is a link, and runs once.
func TestUnacknowledged(t *testing.T) {
	t.Parallel()
	s, ob := natstest.Bus(t)
	d := newDeaf(t, s.Addr().String())
	b := dialWith(t, "nats://"+d.l.Addr().String(), natstest.Layout(1), deafAckWait)
	o := &owner{t: t, b: ob, f: ob.Fleet(), epoch: 7, id: "w1-abc"}
	c := connect(t, door(t, b, nil), ConnOptions{})
	session := c.session("bjorn")
	d.cutAfter(subjects.HeaderPrompt)
	c.prompt(session, "1", "one")
	r := o.take("bjorn", 1)
	d.set(false)
	r.says("a")
	r.end(ok())
	c.await("end 1")
	c.want("agent a", "end 1 "+endTurn)
	if last, err := ob.LastSeq(t.Context(), o.f.BacklogStream()); err != nil || last != 1 {
		t.Errorf("%d prompts were stored, %v", last, err)
	}
}

// Giving up: a prompt that may be stored is kept from running before its error is told;
// one that runs already is followed.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	for _, runs := range []bool{false, true} {
		s, ob := natstest.Bus(t)
		d := newDeaf(t, s.Addr().String())
		f := door(t, dialWith(t, "nats://"+d.l.Addr().String(), natstest.Layout(1), deafAckWait), nil)
		f.submitFor = 2 * time.Second
		o := &owner{t: t, b: ob, f: ob.Fleet(), epoch: 7, id: "w1-abc"}
		c := connect(t, f, ConnOptions{})
		session := c.session("bjorn")
		d.cutAfter(subjects.HeaderPrompt)
		c.prompt(session, "1", "one")
		r := o.see("bjorn", 1)
		if runs {
			r.start()
		}
		// The front door writes the record, and is not told that it has.
		written, err := ob.Conn().SubscribeSync("$KV." + o.f.RunsBucket() + "." + subjects.RunKey(r.h.Prompt))
		o.must(err)
		_, err = written.NextMsg(patience)
		o.must(err)
		if runs {
			r.says("a")
			r.end(ok())
			d.set(false)
			c.await("end 1")
			c.want("agent a", "end 1 "+endTurn)
			continue
		}
		d.set(false)
		if got := c.await("end 1"); !strings.Contains(got, "will not run") || !strings.Contains(got, "-32000") {
			t.Errorf("answered %s", got)
		}
		var rec subjects.RunRecord
		_, err = ob.GetJSON(t.Context(), o.f.RunsBucket(), subjects.RunKey(r.h.Prompt), &rec)
		o.must(err)
		if rec.State != subjects.RunCancelled {
			t.Errorf("the record is %+v", rec)
		}
	}
}

func newDeaf(t *testing.T, server string) *deaf {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{l: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			d.mu.Lock()
			d.conns = append(d.conns, in, out)
			d.mu.Unlock()
			running.Go(func() { d.copy(out, in, false) })
			running.Go(func() { d.copy(in, out, true) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.closeAll()
		running.Wait()
	})
	return d
}

func (d *deaf) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

// cutAfter cuts the way back as soon as text passes on the way there: what holds it
// arrives, its answer does not.
func (d *deaf) cutAfter(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after = text
}

// set cuts the way back, or opens it: then all connections are new ones.
func (d *deaf) set(cut bool) {
	d.mu.Lock()
	d.cut = cut
	d.mu.Unlock()
	if !cut {
		d.closeAll()
	}
}

func (d *deaf) copy(to, from net.Conn, back bool) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		d.mu.Lock()
		if !back && d.after != "" && strings.Contains(string(buffer[:n]), d.after) {
			d.cut, d.after = true, ""
		}
		drop := back && d.cut
		d.mu.Unlock()
		if drop {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A waiting prompt is told its place, each change of it, and nothing when it starts.
func TestPlace(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	a, b := c.session("1bjorn"), c.session("1bjorn")
	c.prompt(a, "1", "one")
	first := o.take("bjorn", 1)
	first.says("x")
	c.await("agent x")
	c.prompt(a, "2", "two")
	second := o.see("bjorn", first.seq+1)
	c.prompt(b, "3", "three")
	third := o.see("bjorn", second.seq+1)
	c.await(fmt.Sprintf(`info {"raiderfleet/queue":{"prompt":%q,"place":2,"of":3}}`, third.h.Prompt))
	c.await(fmt.Sprintf(`info {"raiderfleet/queue":{"prompt":%q,"place":1,"of":`, second.h.Prompt))
	first.end(ok())
	c.await("end 1")
	start := time.Now()
	c.await(fmt.Sprintf(`info {"raiderfleet/queue":{"prompt":%q,"place":1,"of":2}}`, third.h.Prompt))
	if d := time.Since(start); d > 2*placeEvery {
		t.Errorf("told after %v", d)
	}
	if strings.Contains(c.received(), fmt.Sprintf(`%q,"place":0`, second.h.Prompt)) || strings.Contains(c.received(), string(first.h.Prompt)) {
		t.Errorf("received %s", c.received())
	}
	c.cancelSession(b)
	c.await("end 3")
	c.cancelSession(a)
	c.await("end 2")
}
