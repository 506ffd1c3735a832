package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

const endTurn = `{"stopReason":"end_turn"}`

// owner is the owner of a lane, played by the test step by step.
type owner struct {
	t     *testing.T
	b     *bus.Bus
	f     subjects.Fleet
	epoch uint64
	n     uint64
	id    subjects.Instance
}

// setup is a NATS server, a front door, and an owner that shares its connection.
func setup(t *testing.T, change func(*Config)) (*FrontDoor, *owner) {
	t.Helper()
	_, b := natstest.Bus(t)
	return door(t, b, change), &owner{t: t, b: b, f: b.Fleet(), epoch: 7, id: "w1-abc"}
}

func door(t *testing.T, b *bus.Bus, change func(*Config)) *FrontDoor {
	t.Helper()
	c := Config{Name: "fd", Version: "1.2.3", MaxBacklog: 1000, Raiders: []Raider{
		{Name: "bjorn", Prompt: PromptCapabilities{EmbeddedContext: true}}, {Name: "astrid"}, {Name: "7named"},
	}}
	if change != nil {
		change(&c)
	}
	f, err := New(b, c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (o *owner) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// running is a prompt that the owner runs.
type running struct {
	o    *owner
	h    subjects.PromptHeader
	seq  uint64
	body []byte
	lane subjects.LaneID
	rec  subjects.RunRecord
	rev  uint64
}

// take waits for the first prompt of the raider from a sequence on and creates its record.
func (o *owner) take(raider subjects.Raider, from uint64) *running {
	o.t.Helper()
	r := o.see(raider, from)
	r.start()
	return r
}

// see waits for the first prompt of the raider from a sequence on.
func (o *owner) see(raider subjects.Raider, from uint64) *running {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		m, err := o.b.Next(ctx, o.f.BacklogStream(), o.f.BacklogRaider(raider), from)
		if (errors.Is(err, bus.ErrNotFound) || bus.Unclear(err)) && sleep(ctx, 5*time.Millisecond) {
			continue
		}
		o.must(err)
		h, err := subjects.ParsePromptHeader(m.Header)
		o.must(err)
		_, lane, _, err := o.f.ParseBacklog(m.Subject)
		o.must(err)
		return &running{o: o, h: h, seq: m.Seq, body: m.Data, lane: lane}
	}
}

func (r *running) start() {
	r.o.t.Helper()
	r.rec = subjects.RunRecord{
		State: subjects.RunRunning, Session: r.h.Session, Principal: r.h.Principal, Lane: r.lane,
		Owner: subjects.Owner{Instance: r.o.id, Epoch: r.o.epoch}, Attempt: 1, Started: time.Now(),
	}
	rev, err := r.o.b.PutJSON(r.o.t.Context(), r.o.f.RunsBucket(), subjects.RunKey(r.h.Prompt), r.rec, 0, 0)
	r.o.must(err)
	r.rev = rev
}

// event stores an event with a given n.
func (r *running) event(epoch, n uint64, kind subjects.EventKind, body []byte) {
	r.o.t.Helper()
	h := subjects.EventHeader{Kind: kind, Prompt: r.h.Prompt, Epoch: epoch, N: n, Worker: r.o.id}
	_, err := r.o.b.Publish(r.o.t.Context(), &nats.Msg{Subject: r.o.f.Event(r.h.Session), Header: h.Header(), Data: body})
	r.o.must(err)
}

func (r *running) textN(epoch, n uint64, text string) {
	r.o.t.Helper()
	r.event(epoch, n, subjects.EventUpdate, subjects.TextChunk(r.h.Session, "agent_message_chunk", "", text))
}

// says writes the next update of the owner.
func (r *running) says(text string) {
	r.o.t.Helper()
	r.o.n++
	r.textN(r.o.epoch, r.o.n, text)
}

func (r *running) user() {
	r.o.t.Helper()
	r.o.n++
	var p struct {
		Prompt json.RawMessage `json:"prompt"`
	}
	r.o.must(json.Unmarshal(r.body, &p))
	r.event(r.o.epoch, r.o.n, subjects.EventUser, object(subjects.UserMessage{
		Prompt: p.Prompt, Origin: string(r.h.Origin.FrontDoor) + " " + string(r.h.Origin.Attachment),
	}))
}

// record writes the outcome into the run record.
func (r *running) record(out subjects.Outcome) subjects.Outcome {
	r.o.t.Helper()
	out.Prompt, out.Worker = r.h.Prompt, r.o.id
	if out.LastEpoch == 0 {
		out.LastEpoch, out.LastN = r.o.epoch, r.o.n
	}
	r.rec.State, r.rec.Outcome, r.rec.Ended = out.State, &out, time.Now()
	_, err := r.o.b.PutJSON(r.o.t.Context(), r.o.f.RunsBucket(), subjects.RunKey(r.h.Prompt), r.rec, r.rev, 0)
	r.o.must(err)
	return out
}

// tell stores the outcome event and returns its sequence.
func (r *running) tell(out subjects.Outcome) uint64 {
	r.o.t.Helper()
	h := subjects.EventHeader{Kind: subjects.EventOutcome, Prompt: r.h.Prompt, LastEpoch: out.LastEpoch, LastN: out.LastN, Worker: r.o.id}
	seq, err := r.o.b.Publish(r.o.t.Context(), &nats.Msg{Subject: r.o.f.Event(r.h.Session), Header: h.Header(), Data: object(out)},
		jetstream.WithMsgID(string(r.h.Prompt)+".outcome"))
	r.o.must(err)
	return seq
}

// end is the whole end of a run.
func (r *running) end(out subjects.Outcome) uint64 {
	r.o.t.Helper()
	seq := r.tell(r.record(out))
	r.o.must(r.o.b.DeleteMessage(r.o.t.Context(), r.o.f.BacklogStream(), r.seq))
	return seq
}

func ok() subjects.Outcome {
	return subjects.Outcome{State: subjects.RunCompleted, StopReason: "end_turn", Result: json.RawMessage(endTurn)}
}

func dial(t *testing.T, url string, layout subjects.Layout) *bus.Bus {
	t.Helper()
	return dialWith(t, url, layout, natstest.AckWait)
}

func dialWith(t *testing.T, url string, layout subjects.Layout, ackWait time.Duration) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{url}, Name: t.Name(), Layout: layout, AckWait: ackWait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func natsMsg(subject string, h subjects.EventHeader, body []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: h.Header(), Data: body}
}
