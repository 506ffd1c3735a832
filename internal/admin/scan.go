package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// scanBatch is how many messages are asked for at once.
	scanBatch = 500
	// scanTries is how often a scan is begun anew after a message got lost on its way.
	scanTries = 3
)

// errGap says that a message got lost between the server and us.
var errGap = errors.New("a message got lost on its way")

// scanOnce reads what a consumer has now. The consumer is gone when it returns: the
// library's ordered one would stay for minutes. An error of take ends the scan and is
// returned; errGap when a message was lost, of which take has not seen what follows.
func (f *Fleet) scanOnce(ctx context.Context, stream string, c jetstream.ConsumerConfig, take func(m jetstream.Msg, seq uint64, at time.Time) error) error {
	c.AckPolicy, c.MemoryStorage, c.Replicas = jetstream.AckNonePolicy, true, 1
	c.InactiveThreshold = f.b.AckWait() // if it can't be deleted
	js := f.b.JetStream()
	bound, cancel := f.b.Bound(ctx, f.b.AckWait()/2)
	consumer, err := js.CreateConsumer(bound, stream, c)
	cancel()
	if err != nil {
		return fmt.Errorf("read %s: %w", stream, err)
	}
	defer func() {
		bound, done := f.b.Bound(context.WithoutCancel(ctx), 0)
		defer done()
		_ = js.DeleteConsumer(bound, stream, consumer.CachedInfo().Name) // else its threshold does
	}()
	read := uint64(0)
	for pending := consumer.CachedInfo().NumPending; pending > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := consumer.Fetch(int(min(pending, scanBatch)), jetstream.FetchMaxWait(f.b.AckWait()/3))
		if err != nil {
			return fmt.Errorf("read %s: %w", stream, err)
		}
		var stop error
		before := read
		for m := range batch.Messages() {
			if stop != nil {
				continue // the rest of the batch is on its way
			}
			meta, err := m.Metadata()
			switch {
			case err != nil:
				stop = err
			case meta.Sequence.Consumer != read+1:
				stop = errGap
			default:
				read, pending = read+1, meta.NumPending
				stop = take(m, meta.Sequence.Stream, meta.Timestamp)
			}
		}
		switch {
		case stop != nil:
			return stop
		case batch.Error() != nil:
			return fmt.Errorf("read %s: %w", stream, batch.Error())
		case read == before:
			return errGap
		}
	}
	return nil
}

// scan is scanOnce, begun anew where a message got lost: fresh is called before each try.
func (f *Fleet) scan(ctx context.Context, stream string, c jetstream.ConsumerConfig, fresh func(), take func(m jetstream.Msg, seq uint64, at time.Time) error) error {
	for try := 1; ; try++ {
		fresh()
		err := f.scanOnce(ctx, stream, c, take)
		if !errors.Is(err, errGap) || try == scanTries {
			return err
		}
	}
}

// values reads the last value of each key of a bucket that filter matches, without those
// that were deleted. Unlike bus.List it costs a few requests, however many keys there are.
func (f *Fleet) values(ctx context.Context, bucket, filter string, take func(key string, value []byte) error) error {
	prefix := "$KV." + bucket + "."
	found := map[string][]byte{}
	err := f.scan(ctx, "KV_"+bucket, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: prefix + filter,
	}, func() { clear(found) }, func(m jetstream.Msg, _ uint64, _ time.Time) error {
		if h := m.Headers(); h.Get("KV-Operation") == "" && h.Get("Nats-Marker-Reason") == "" {
			found[m.Subject()[len(prefix):]] = m.Data()
		}
		return nil
	})
	if err != nil {
		return err
	}
	for key, value := range found {
		if err := take(key, value); err != nil {
			return err
		}
	}
	return nil
}
