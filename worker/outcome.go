package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// finish writes the prompt's outcome: events stored, then the record by compare-and-set
// (this is the moment at which the prompt has ended), then what follows from it.
func (r *run) finish(out subjects.Outcome) error {
	l := r.l
	out.Prompt = r.header.Prompt
	if out.Worker == "" {
		out.Worker = l.w.instance
	}
	if out.LastEpoch == 0 {
		// Also with no event of ours: readers then drop what a lost owner still sends.
		out.LastEpoch, out.LastN = l.owner().Epoch, l.out.last(r.header.Session)
	}
	if err := l.out.flush(); err != nil {
		return err
	}
	out, err := r.fitting(out)
	if err != nil {
		return err
	}
	r.record.State, r.record.Ended, r.record.Outcome = out.State, time.Now(), &out
	key, bucket := subjects.RunKey(r.header.Prompt), l.w.fleet.RunsBucket()
	expect := r.rev
	err = l.do(func(ctx context.Context) error {
		rev, err := l.w.b.PutJSON(ctx, bucket, key, r.record, expect, 0)
		if err == nil {
			r.rev = rev
		}
		return err
	})
	if err == nil {
		return r.settle()
	}
	if !errors.Is(err, bus.ErrConflict) {
		return err
	}
	var have subjects.RunRecord
	err = l.do(func(ctx context.Context) error {
		var err error
		r.rev, err = l.w.b.GetJSON(ctx, bucket, key, &have)
		return err
	})
	if err != nil {
		return err
	}
	if !have.State.Ended() {
		l.lose("the run's record is another's")
		return errLeaseLost
	}
	// An earlier try of our own, or another ended it: the record is the truth.
	r.record = have
	return r.settle()
}

// fitting moves an outcome that is too large for a message to the object store.
func (r *run) fitting(out subjects.Outcome) (subjects.Outcome, error) {
	l := r.l
	body, err := json.Marshal(out)
	if err != nil || len(body) <= l.w.b.MaxInline() {
		return out, err
	}
	name := "outcome." + string(r.header.Prompt)
	err = l.do(func(context.Context) error {
		return l.w.b.PutPayload(l.ctx, name, body) //nolint:contextcheck // longer than one request
	})
	out.Payload, out.Result = name, nil
	if errors.Is(err, bus.ErrFull) {
		l.w.log.Error("an outcome is cut: PAYLOADS is full", "prompt", string(r.header.Prompt), "bytes", len(body))
		out.Payload, err = "", nil
	}
	if out.Error != nil {
		cut := *out.Error
		cut.Data = nil
		if len(cut.Message) > tailBytes {
			cut.Message = strings.ToValidUTF8(cut.Message[:tailBytes], "") + "…"
		}
		out.Error = &cut
	}
	return out, err
}

// settle does what follows from an ended record: the outcome event, the transcript, the
// message deleted, the record retired. Whoever finds an ended record does it again;
// each step is safe to repeat.
func (r *run) settle() error {
	l := r.l
	out := r.record.Outcome
	if out == nil {
		out = &subjects.Outcome{Prompt: r.header.Prompt, State: r.record.State}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	h := subjects.EventHeader{
		Kind: subjects.EventOutcome, Prompt: r.header.Prompt, Worker: out.Worker,
		LastEpoch: out.LastEpoch, LastN: out.LastN,
	}
	if l.tail != nil {
		<-l.tail // one at a time, in the order of the runs
	}
	var seq uint64
	err = l.do(func(ctx context.Context) error {
		m := &nats.Msg{Subject: l.w.fleet.Event(r.header.Session), Header: h.Header(), Data: body}
		var err error
		seq, err = l.w.b.Publish(ctx, m, jetstream.WithMsgID(string(r.header.Prompt)+".outcome"))
		return err
	})
	if err != nil {
		return err
	}
	// The rest keeps nobody waiting. The lane's next prompt is looked for behind this one,
	// and the lane is not released before this has been done.
	l.after = r.seq
	tail := make(chan struct{})
	l.tail = tail
	go func() { // waited for by the next settle and by serve
		defer close(tail)
		if r.story == nil {
			var err error
			if r.story, err = r.retell(seq); err != nil && l.ctx.Err() == nil {
				l.w.log.Error("a lost run's events can't be read", "session", string(r.header.Session), "error", err)
			}
		}
		if r.story != nil {
			if err := r.story.write(l, seq, out); err != nil && l.ctx.Err() == nil {
				l.w.log.Error("transcript entry not stored", "session", string(r.header.Session), "error", err)
			} else if err == nil {
				l.keepRun(r.header.Session, r.story.begin())
			}
		}
		err := l.do(func(ctx context.Context) error {
			return l.w.b.DeleteMessage(ctx, l.w.fleet.BacklogStream(), r.seq)
		})
		switch {
		case err == nil:
			r.retire()
		case l.ctx.Err() == nil:
			// Whoever owns the lane next finds the ended record and deletes the message.
			l.w.log.Error("an ended prompt stays in the backlog", "prompt", string(r.header.Prompt), "error", err)
		}
	}()
	r.tellEnded(*out)
	return nil
}

// retire lets the record go after a while: its message has left the backlog. Sent
// without waiting for the answer; the sweep retires what is left over.
func (r *run) retire() {
	l := r.l
	body, err := json.Marshal(r.record)
	if err != nil {
		return
	}
	m := &nats.Msg{
		Subject: "$KV." + l.w.fleet.RunsBucket() + "." + subjects.RunKey(r.header.Prompt),
		Header:  nats.Header{}, Data: body,
	}
	m.Header.Set(jetstream.MsgTTLHeader, subjects.RunTTL.String())
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(r.rev, 10))
	_ = l.w.b.Conn().PublishMsg(m) // a lost one is the sweep's
	if r.header.Payload != "" {
		payload := r.header.Payload
		l.w.all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), l.w.b.AckWait())
			defer cancel()
			if err := l.w.b.DeletePayload(ctx, payload); err != nil {
				l.w.log.Debug("payload left over", "error", err)
			}
		})
	}
}
