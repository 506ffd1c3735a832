package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// direct submits prompts to one lane as a front door does, without one: it leaves out what
// a front door leaves out only when it dies.
type direct struct {
	f        *fleet
	raider   raiderSpec
	lane     subjects.LaneID
	sessions []subjects.SessionID
	at       int // the session that submits
	number   int
}

func (f *fleet) newDirect(number int, raider raiderSpec, slot string, sessions int) *direct {
	f.tb.Helper()
	c := &direct{f: f, raider: raider, lane: slotLane(f.tb, slot), number: number}
	for range sessions {
		s := subjects.NewSession()
		if slot == "" {
			c.lane = subjects.SessionLane(s)
		}
		meta := subjects.SessionMeta{
			Session: s, Principal: subjects.LocalPrincipal, Raider: raider.name, Slot: slot, Lane: c.lane,
			Class: subjects.AnyClass, State: subjects.SessionOpen, Cwd: f.dir, Created: time.Now(),
		}
		until(f.tb, 30*time.Second, "session record", func(ctx context.Context) error {
			_, err := f.bus.SetJSON(ctx, f.bus.Fleet().SessionsBucket(), subjects.MetaKey(subjects.LocalPrincipal, s), meta, 0)
			return err
		})
		c.sessions = append(c.sessions, s)
	}
	return c
}

// run submits until ctx ends.
func (c *direct) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		rng := c.f.rng(laneOfDirect, c.number, n)
		if p := c.submit(ctx, rng, n); rng.IntN(12) == 0 {
			pause(ctx, time.Duration(rng.IntN(60))*time.Millisecond)
			c.cancel(ctx, p)
		}
		// Slower than the lane: visitors share it, and are to get answers.
		pause(ctx, time.Duration(rng.IntN(700))*time.Millisecond)
	}
}

// submit publishes a prompt and its baton. It returns when the prompt is accepted.
func (c *direct) submit(ctx context.Context, rng *rand.Rand, n int) *prompt {
	b := c.f.bus
	if rng.IntN(4) == 0 { // on a slot, another session's prompt costs a new process
		c.at = rng.IntN(len(c.sessions))
	}
	p := &prompt{tag: fmt.Sprintf("d%d.%d", c.number, n), session: c.sessions[c.at], lane: c.lane, attempts: c.raider.attempts}
	id := subjects.NewPrompt()
	body := []byte(mustJSON(map[string]any{
		"sessionId": p.session, "prompt": []any{map[string]string{"type": "text", "text": textOf(p, rng)}},
	}))
	h := subjects.PromptHeader{Prompt: id, Session: p.session, Principal: subjects.LocalPrincipal, Kind: subjects.KindPrompt, Priority: "normal"}
	c.f.h.sent(p)
	// A prompt that was begun is published to the end: what a front door that gives up
	// does is in its own tests.
	for {
		try, cancel := b.Bound(context.Background(), c.f.ackWait)
		c.f.h.published(id, p.session, p.tag)
		seq, err := b.Publish(try, &nats.Msg{Subject: b.Fleet().Backlog(c.raider.name, c.lane, subjects.LocalPrincipal), Header: h.Header(), Data: body},
			jetstream.WithMsgID(string(id)))
		cancel()
		if err == nil {
			c.f.h.acked(id, seq, false)
			break
		}
		pause(context.Background(), 50*time.Millisecond)
	}
	if rng.IntN(10) == 0 {
		return p // as a front door that died between the two
	}
	try, cancel := b.Bound(ctx, c.f.ackWait)
	defer cancel()
	_, _ = b.Publish(try, &nats.Msg{Subject: b.Fleet().Ready(c.raider.name, subjects.AnyClass, c.lane)})
	return p
}

// cancel cancels a prompt as a front door does: the mark, then the record of one that
// waits, then the owner.
func (c *direct) cancel(ctx context.Context, p *prompt) {
	b := c.f.bus
	runs, id := b.Fleet().RunsBucket(), p.id()
	// Noted first: a mark may be stored though its answer gets lost.
	c.f.h.cancel(p.session, p.tag)
	try, done := b.Bound(ctx, c.f.ackWait)
	defer done()
	if _, err := b.SetJSON(try, runs, subjects.CancelKey(id), subjects.CancelMark{By: "checker", Time: time.Now()}, subjects.RunTTL); err != nil {
		return
	}
	record := subjects.RunRecord{
		State: subjects.RunCancelled, Session: p.session, Principal: subjects.LocalPrincipal, Raider: c.raider.name, Lane: p.lane, Ended: time.Now(),
		Outcome: &subjects.Outcome{Prompt: id, State: subjects.RunCancelled},
	}
	_, err := b.PutJSON(try, runs, subjects.RunKey(id), record, 0, 0)
	if err == nil {
		_ = b.DeleteMessage(try, b.Fleet().BacklogStream(), p.seq) // left over: the owner finds the record
		return
	}
	if errors.Is(err, bus.ErrConflict) {
		req := subjects.ControlRequest{Op: subjects.ControlCancel, Principal: subjects.LocalPrincipal, Session: p.session, Prompt: id}
		_, _ = b.Conn().RequestWithContext(try, b.Fleet().Control(p.lane), []byte(mustJSON(req)))
	}
}

// large is more than a message of NATS may have.
const large = 1_100_000

// textOf is what a prompt says to the raider.
func textOf(p *prompt, rng *rand.Rand) string {
	ms, size := rng.IntN(120), 0
	if rng.IntN(15) == 0 {
		ms = 1500 // some outlive a fault
	}
	switch rng.IntN(60) {
	case 0:
		size = large // over NATS' limit of a message: by way of the object store
	case 1, 2, 3:
		size = 20_000
	}
	if size == large {
		ms = min(ms, 60)
	}
	return fmt.Sprintf("%s %s %d %d", p.lane, p.tag, ms, size)
}

// slotLane is the lane of a slot; empty for none.
func slotLane(tb testing.TB, slot string) subjects.LaneID {
	tb.Helper()
	if slot == "" {
		return ""
	}
	lane, err := subjects.SlotLane(slot)
	if err != nil {
		tb.Fatal(err)
	}
	return lane
}
