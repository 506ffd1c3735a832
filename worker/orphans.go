package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

const (
	// presenceBeats is how many ack_waits a presence outlives its last renewal.
	presenceBeats = 3
	// orphanBeats is how many ack_waits a raider must have been unknown to everybody before
	// its prompts are refused: a worker that is restarted is back long before.
	orphanBeats = presenceBeats + 2
)

// orphans remembers since when nobody has known a raider for which prompts wait. It is
// the sweep's; another sweeper begins anew, and so decides later.
type orphans struct {
	since  map[subjects.Raider]time.Time
	looked time.Time
}

// sweepOrphans refuses prompts whose raider has gone from the fleet: for orphanBeats no
// worker has served it, and no front door has had it in its configuration. The record is
// created, so that a worker which serves the raider after all either was first, and then
// the prompt is its own, or finds the prompt refused.
func (w *Worker) sweepOrphans(ctx context.Context, o *orphans, now time.Time) error {
	// What was not looked at for long may have been there meanwhile.
	if now.Sub(o.looked) > 2*w.b.AckWait() {
		o.since = map[subjects.Raider]time.Time{}
	}
	waiting, err := w.b.Subjects(ctx, w.fleet.BacklogStream(), w.fleet.BacklogAll())
	if err != nil {
		return err
	}
	missing := map[subjects.Raider]bool{}
	for _, s := range waiting {
		if r, _, _, err := w.fleet.ParseBacklog(s); err == nil && w.raiders[r] == nil {
			missing[r] = true
		}
	}
	var alive map[subjects.Instance]bool
	if len(missing) > 0 {
		var known map[subjects.Raider]bool
		if known, alive, err = w.known(ctx); err != nil {
			return err
		}
		for r := range known {
			delete(missing, r)
		}
	}
	o.looked = now
	for r := range o.since {
		if !missing[r] {
			delete(o.since, r)
		}
	}
	for r := range missing {
		if _, ok := o.since[r]; !ok {
			o.since[r] = now
		}
		if now.Sub(o.since[r]) >= orphanBeats*w.b.AckWait() {
			if err := w.refuseAll(ctx, r, alive); err != nil {
				return err
			}
		}
	}
	return nil
}

// known reads which raiders some process of the fleet serves or has in its configuration,
// and which processes there are.
func (w *Worker) known(ctx context.Context) (map[subjects.Raider]bool, map[subjects.Instance]bool, error) {
	records, err := w.b.List(ctx, w.fleet.NodesBucket(), "*")
	if err != nil {
		return nil, nil, err
	}
	raiders, alive := map[subjects.Raider]bool{}, map[subjects.Instance]bool{}
	for _, rec := range records {
		var n subjects.Node
		if json.Unmarshal(rec.Value, &n) != nil || n.State == subjects.NodeGoodbye {
			continue
		}
		alive[n.Instance] = true
		for _, r := range n.Raiders {
			raiders[r] = true
		}
	}
	return raiders, alive, nil
}

// refuseAll ends all prompts that wait for a raider, in their order.
func (w *Worker) refuseAll(ctx context.Context, r subjects.Raider, alive map[subjects.Instance]bool) error {
	for from := uint64(1); ; {
		m, err := w.b.Next(ctx, w.fleet.BacklogStream(), w.fleet.BacklogRaider(r), from)
		if errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.refuse(ctx, r, m, alive); err != nil {
			return err
		}
		from = m.Seq + 1
	}
}

// refuse ends one prompt: what is there of it already is the truth. Each step is safe to
// repeat, and the next sweep does when one fails.
func (w *Worker) refuse(ctx context.Context, raider subjects.Raider, m bus.Message, alive map[subjects.Instance]bool) error {
	h, err := subjects.ParsePromptHeader(m.Header)
	if err != nil {
		return w.b.DeleteMessage(ctx, w.fleet.BacklogStream(), m.Seq) // not written by a front door
	}
	if h.Kind == subjects.KindOpen {
		return w.b.DeleteMessage(ctx, w.fleet.BacklogStream(), m.Seq) // nobody is to be told
	}
	_, lane, _, err := w.fleet.ParseBacklog(m.Subject)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("no worker serves raider %s any more, and no front door knows it; nothing was run", raider)
	rec := subjects.RunRecord{
		State: subjects.RunRefused, Session: h.Session, Principal: h.Principal, Raider: raider, Lane: lane, Ended: time.Now(),
		Outcome: &subjects.Outcome{Prompt: h.Prompt, State: subjects.RunRefused, Error: &subjects.RunError{Message: text}},
	}
	bucket, key := w.fleet.RunsBucket(), subjects.RunKey(h.Prompt)
	rev, err := w.b.PutJSON(ctx, bucket, key, rec, 0, 0)
	if errors.Is(err, bus.ErrConflict) {
		have := subjects.RunRecord{}
		rev, err = w.b.GetJSON(ctx, bucket, key, &have)
		text := fmt.Sprintf("worker %s was lost while it ran this prompt; it was not run again", have.Owner.Instance)
		switch {
		case errors.Is(err, bus.ErrCorrupt):
			have, text = rec, "the prompt's run record can't be read; it was not run"
		case err != nil:
			return err
		case !have.State.Ended() && alive[have.Owner.Instance]:
			return nil // it runs, or who has it says what became of it
		}
		if err != nil || !have.State.Ended() {
			// Of the run that was lost; nobody is left who could be told the answer.
			if err := w.closeLeftAsks(ctx, subjects.AskFilter(h.Session), func(b subjects.AskBody) (bool, error) {
				return b.Prompt == h.Prompt, nil
			}); err != nil {
				return err
			}
			have.State, have.Ended = subjects.RunFailed, time.Now()
			have.Outcome = &subjects.Outcome{
				Prompt: h.Prompt, State: subjects.RunFailed, Worker: have.Owner.Instance, LastEpoch: have.Owner.Epoch,
				Error: &subjects.RunError{Message: text},
			}
			rev, err = w.b.PutJSON(ctx, bucket, key, have, rev, 0)
		}
		rec = have
	}
	if err != nil {
		return err
	}
	return w.settleOrphan(ctx, h, m.Seq, rec, rev)
}

// settleOrphan does what follows from the record of a prompt that nobody else will settle.
func (w *Worker) settleOrphan(ctx context.Context, h subjects.PromptHeader, seq uint64, rec subjects.RunRecord, rev uint64) error {
	out := rec.Outcome
	if out == nil {
		out = &subjects.Outcome{Prompt: h.Prompt, State: rec.State}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	header := subjects.EventHeader{
		Kind: subjects.EventOutcome, Prompt: h.Prompt, Worker: out.Worker, LastEpoch: out.LastEpoch, LastN: out.LastN,
	}
	event := &nats.Msg{Subject: w.fleet.Event(h.Session), Header: header.Header(), Data: body}
	if _, err := w.b.Publish(ctx, event, jetstream.WithMsgID(string(h.Prompt)+".outcome")); err != nil {
		return err
	}
	if err := w.b.DeleteMessage(ctx, w.fleet.BacklogStream(), seq); err != nil {
		return err
	}
	w.log.Warn("prompt ended: its raider has gone from the fleet", "prompt", string(h.Prompt), "raider", string(rec.Raider))
	kind := subjects.RaiderDone
	if out.State == subjects.RunRefused {
		kind = subjects.RaiderRefused
	}
	w.tell(subjects.FleetEvent{
		Kind: kind, Raider: rec.Raider, Lane: rec.Lane, Session: h.Session, Principal: h.Principal, Prompt: h.Prompt, Outcome: out.State,
	})
	// The rest is the sweep's as well, if it is left over.
	_, err = w.b.PutJSON(ctx, w.fleet.RunsBucket(), subjects.RunKey(h.Prompt), rec, rev, subjects.RunTTL)
	if h.Payload != "" {
		err = errors.Join(err, w.b.DeletePayload(ctx, h.Payload))
	}
	return err
}
