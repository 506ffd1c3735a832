package frontdoor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func (c *client) load(s subjects.SessionID) json.RawMessage {
	c.t.Helper()
	result := c.call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/w","mcpServers":[]}`, s))
	c.add("loaded")
	return result
}

// transcript stores a run's entry.
func (r *running) transcript(first, last uint64, out subjects.Outcome, texts ...string) {
	r.o.t.Helper()
	e := subjects.TranscriptEntry{Prompt: r.h.Prompt, First: first, Last: last, Outcome: &out}
	for _, text := range texts {
		e.Updates = append(e.Updates, subjects.TextChunk(r.h.Session, "agent_message_chunk", "", text))
	}
	_, err := r.o.b.Publish(r.o.t.Context(), &nats.Msg{Subject: r.o.f.Transcript(r.h.Session), Data: object(e)})
	r.o.must(err)
}

func (o *owner) lastEvent() uint64 {
	o.t.Helper()
	seq, err := o.b.LastSeq(o.t.Context(), o.f.EventsStream())
	o.must(err)
	return seq
}

// The transcript, what it does not cover, and what comes, at another front door and in
// mid-turn, each once and in order.
func TestLoadInMidTurn(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")

	// A run with a transcript.
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	r.user()
	first := o.lastEvent()
	r.says("a")
	r.says("b")
	out := ok()
	out.LastEpoch, out.LastN = o.epoch, o.n
	last := r.end(out)
	c.await("end 1")
	r.transcript(first, last, out, "ab")
	// A run whose worker was lost: no transcript. Its event is only in EVENTS.
	c.prompt(s, "2", "two")
	r = o.take("bjorn", r.seq+1)
	r.says("lost")
	o.epoch, o.n = 9, 0
	out = subjects.Outcome{State: subjects.RunFailed, LastEpoch: 9, Error: &subjects.RunError{Message: "lost"}}
	r.end(out)
	c.await("end 2")
	// Another with one.
	c.prompt(s, "3", "three")
	r = o.take("bjorn", r.seq+1)
	r.user()
	first = o.lastEvent()
	r.says("c")
	out = ok()
	out.LastEpoch, out.LastN = o.epoch, o.n
	last = r.end(out)
	c.await("end 3")
	r.transcript(first, last, out, "c")
	// One that runs, and has asked.
	c.prompt(s, "4", "four")
	r = o.take("bjorn", r.seq+1)
	r.user()
	r.says("d")
	decided := r.asks()
	c.question(0)
	r.askDone(decided.Ask)
	r.asks()
	c.question(1)

	second := connect(t, door(t, o.b, nil), ConnOptions{})
	if got := string(second.load(s)); got != `{}` {
		t.Errorf("session/load answered %s", got)
	}
	second.question(0)
	r.says("e")
	r.end(ok())
	c.await("end 4")
	second.await("agent e")
	second.prompt(s, "5", "five")
	r = o.take("bjorn", r.seq+1)
	r.user()
	r.says("f")
	r.end(ok())
	second.await("end 5")
	var got []string
	for _, line := range second.log {
		if line != "ask session/request_permission" && line != "withdrawn" {
			got = append(got, line)
		}
	}
	second.log = got
	second.want("agent ab", "agent lost", "agent c", "user four", "agent d", "loaded", "agent e", "agent f", "end 5 "+endTurn)
	if len(second.asked) != 1 {
		t.Errorf("%d questions were asked", len(second.asked))
	}

	// Once more on the same connection: all of it, the own messages too.
	second.log = nil
	second.load(s)
	second.want("agent ab", "agent lost", "agent c", "user four", "agent d", "agent e", "user five", "agent f", "loaded")
}

func TestLoadThatIsNotWhole(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	s := connect(t, f, ConnOptions{}).session("bjorn")
	h := nats.Header{}
	h.Set(subjects.HeaderPayload, "gone")
	_, err := o.b.Publish(t.Context(), &nats.Msg{Subject: o.f.Transcript(s), Header: h})
	o.must(err)
	c := connect(t, f, ConnOptions{})
	if got := string(c.load(s)); got != `{"_meta":{"raiderfleet/incomplete":true}}` {
		t.Errorf("session/load answered %s", got)
	}
}

// A client that loads a session in mid-turn sees it from its beginning: nothing that comes
// live gets ahead of the conversation.
func TestLoadBeforeLive(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	var writing sync.WaitGroup
	over := make(chan struct{})
	writing.Go(func() {
		for i := 0; ; i++ { // all the time, faster than it can be read
			select {
			case <-over:
				return
			default:
				r.says(fmt.Sprint(i))
			}
		}
	})
	defer writing.Wait()
	defer close(over)
	for range 6 {
		again := connect(t, f, ConnOptions{})
		again.load(s)
		again.stop()
		for i, line := range again.log {
			if line == "loaded" {
				break
			}
			if line != fmt.Sprintf("agent %d", i) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
	}
}

// A run whose events were stored twice, since the acknowledgements of the first got lost, is
// shown once; what an earlier owner showed of it is shown too.
func TestLoadOfRepeatedEvents(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	r.textN(o.epoch, 1, "lost")
	o.epoch++
	var first uint64
	for range 2 {
		r.textN(o.epoch, 1, "a")
		first = o.lastEvent()
		r.textN(o.epoch, 2, "b")
	}
	o.n = 2
	out := ok()
	out.LastEpoch, out.LastN = o.epoch, o.n
	last := r.end(out)
	c.await("end 1")
	r.transcript(first, last, out, "ab")
	c.want("agent lost", "agent a", "agent b", "end 1 "+endTurn)
	again := connect(t, f, ConnOptions{})
	again.load(s)
	again.want("agent lost", "agent ab", "loaded")
}

// A hold on a session that is let go amid a long catch-up writes nothing after the answer
// to session/close, and nothing between what the next session/load shows.
func TestLoadAfterClose(t *testing.T) {
	t.Parallel()
	s, ob := natstest.Bus(t)
	d := newDeaf(t, s.Addr().String())
	f := door(t, dial(t, "nats://"+d.l.Addr().String(), natstest.Layout(1)), nil)
	o := &owner{t: t, b: ob, f: ob.Fleet(), epoch: 7, id: "w1-abc"}
	c, other := connect(t, f, ConnOptions{}), connect(t, f, ConnOptions{})
	session := c.session("bjorn")
	other.prompt(session, "1", "one")
	r := o.take("bjorn", 1)
	r.says("first.")
	c.await("agent first.")
	d.set(true)
	const updates = 3 * bulkReads
	want := []string{"agent first."}
	for i := range updates {
		want = append(want, fmt.Sprintf("agent %d.", i))
		r.says(fmt.Sprintf("%d.", i))
	}
	r.end(ok())
	d.set(false)
	c.await(fmt.Sprintf("agent %d.", singleReads+1)) // a batch has been fetched
	c.hold()
	closed := sync.OnceFunc(c.release)
	defer closed()
	if _, err := c.pipe.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"method":"session/close","params":{"sessionId":%q}}`+"\n", promptID+"close", session)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		var m subjects.SessionMeta
		_, err := ob.GetJSON(t.Context(), o.f.SessionsBucket(), subjects.MetaKey("local", session), &m)
		o.must(err)
		if m.State != subjects.SessionClosed {
			return "state " + string(m.State)
		}
		return ""
	})
	closed()
	c.await("end close {}")
	c.load(session)
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for _, line := range c.log[slices.Index(c.log, "end close {}")+1:] {
		if strings.HasPrefix(line, "agent ") {
			got = append(got, line)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("shown after the close: %q", got)
	}
}

// A long run's entry is in parts: they are shown in order and before the rest; that one is
// missing is told.
func TestLoadOfParts(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	r.user()
	first := o.lastEvent()
	out := ok()
	out.LastEpoch, out.LastN = o.epoch, o.n
	last := r.end(out)
	c.await("end 1")
	e := subjects.TranscriptEntry{Prompt: r.h.Prompt, First: first, Last: last, Outcome: &out, Parts: []string{"transcript.p.1", "transcript.p.2"}}
	e.Updates = []json.RawMessage{subjects.TextChunk(s, "agent_message_chunk", "", "c")}
	for i, name := range e.Parts {
		o.must(o.b.PutPayload(t.Context(), name, object([]json.RawMessage{subjects.TextChunk(s, "agent_message_chunk", "", string(rune('a'+i)))})))
	}
	_, err := o.b.Publish(t.Context(), &nats.Msg{Subject: o.f.Transcript(s), Data: object(e)})
	o.must(err)
	whole := connect(t, f, ConnOptions{})
	if result := whole.load(s); string(result) != "{}" {
		t.Errorf("answered %s", result)
	}
	whole.want("agent a", "agent b", "agent c", "loaded")
	o.must(o.b.DeletePayload(t.Context(), e.Parts[0]))
	part := connect(t, f, ConnOptions{})
	if result := part.load(s); !strings.Contains(string(result), "raiderfleet/incomplete") {
		t.Errorf("answered %s", result)
	}
	part.want("agent_thought_chunk [a part of this conversation is not available any more]", "agent b", "agent c", "loaded")
}
