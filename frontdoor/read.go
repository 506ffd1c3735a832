package frontdoor

import (
	"context"
	"errors"
	"math"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
)

const (
	// singleReads is how many events are read one by one, each a request to the stream's
	// leader, before a consumer is made for the rest. A consumer costs milliseconds, on
	// three replicas tens of them.
	singleReads = 64
	// bulkReads is how many events are asked for at once: each may be a megabyte.
	bulkReads = 64
)

// catchUp reads on from EVENTS to what is its end now, or until a sequence has been taken.
// It goes at the client's pace, and waits for NATS as long as it takes. What comes meanwhile
// comes live: a session that writes faster than it is read has no other end.
func (w *follower) catchUp(ctx context.Context, until uint64) {
	if until == math.MaxUint64 {
		last, err := w.read(ctx, func(ctx context.Context) (bus.Message, error) {
			return w.f.b.Last(ctx, w.f.fleet.EventsStream(), w.subject)
		})
		if err != nil {
			return // it has none, or ctx has ended
		}
		until = last.Seq
	}
	for reads := 1; w.cursor < until; reads++ {
		if reads%singleReads == 0 {
			w.bulk(ctx, until)
		}
		// The end is the leader's to tell: a consumer may be behind.
		m, err := w.next(ctx, w.cursor+1)
		if err != nil {
			return // at its end, or ctx has ended
		}
		w.take(ctx, m.Seq, m.Header, m.Data)
	}
}

// bulk reads on with a consumer. Where it stops early, single reads go on.
func (w *follower) bulk(ctx context.Context, until uint64) {
	b, stream := w.f.b, w.f.fleet.EventsStream()
	bound, done := b.Bound(ctx, b.AckWait()/3)
	defer done()
	consumer, err := b.JetStream().CreateConsumer(bound, stream, jetstream.ConsumerConfig{
		FilterSubject: w.subject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.cursor + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: b.AckWait(), // if it can't be deleted
	})
	if err != nil {
		w.a.log.Debug("no consumer to catch up with", "error", err)
		return
	}
	defer func() {
		bound, done := b.Bound(context.WithoutCancel(ctx), 0)
		defer done()
		if err := b.JetStream().DeleteConsumer(bound, stream, consumer.CachedInfo().Name); err != nil {
			w.a.log.Debug("consumer left to its threshold", "error", err)
		}
	}()
	read := uint64(0)
	for pending := consumer.CachedInfo().NumPending; pending > 0 && w.cursor < until && ctx.Err() == nil; {
		batch, err := consumer.Fetch(int(min(pending, bulkReads)), jetstream.FetchMaxWait(b.AckWait()/3))
		if err != nil {
			return
		}
		before := read
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil || meta.Sequence.Consumer != read+1 {
				read = math.MaxUint64 // one got lost on the way: nothing after it is taken
				continue
			}
			read, pending = meta.Sequence.Consumer, meta.NumPending
			w.take(ctx, meta.Sequence.Stream, m.Headers(), m.Data())
		}
		if batch.Error() != nil || read == before || read == math.MaxUint64 {
			return
		}
	}
}

// next reads the session's first event from a sequence on. ErrNotFound at the end.
func (w *follower) next(ctx context.Context, from uint64) (bus.Message, error) {
	return w.read(ctx, func(ctx context.Context) (bus.Message, error) {
		return w.f.b.Next(ctx, w.f.fleet.EventsStream(), w.subject, from)
	})
}

// read repeats a read until it is answered: the error is ErrNotFound, or ctx has ended.
func (w *follower) read(ctx context.Context, get func(context.Context) (bus.Message, error)) (bus.Message, error) {
	for {
		var m bus.Message
		err := w.f.retry(ctx, func(ctx context.Context) error {
			var err error
			m, err = get(ctx)
			return err
		})
		if err == nil || errors.Is(err, bus.ErrNotFound) {
			return m, err
		}
		if ctx.Err() != nil {
			return m, ctx.Err()
		}
		w.a.log.Warn("events can't be read", "error", err)
		if !sleep(ctx, retryReads) {
			return m, ctx.Err()
		}
	}
}
