package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// sweep repairs what a process left half done: every ack_wait/2, by one worker at a
// time (two at once do no harm).
func (w *Worker) sweep(ctx context.Context) {
	every := w.b.AckWait() / 2
	tick := time.NewTicker(every)
	defer tick.Stop()
	var rev uint64
	rounds := 0
	lost := &orphans{}
	// Beside the lanes, which must not wait for it, and with as much time as it takes: there
	// may be very many records.
	var tidying sync.WaitGroup
	defer tidying.Wait()
	tidy := make(chan struct{}, 1) // full while it runs
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var elected bool
		if rev, elected = w.electSweeper(ctx, rev); !elected {
			continue
		}
		bound, cancel := w.b.Bound(ctx, w.b.AckWait())
		err := w.sweepLanes(bound)
		if err == nil {
			err = w.sweepOrphans(bound, lost, time.Now())
		}
		cancel()
		// What is many and only a matter of space.
		if rounds++; err == nil && rounds%tidyRounds == 0 {
			select {
			case tidy <- struct{}{}:
				tidying.Go(func() {
					defer func() { <-tidy }()
					if err := w.tidy(ctx, time.Now()); err != nil && ctx.Err() == nil {
						w.log.Warn("old records not swept, they are tried again", "error", err)
					}
				})
			default: // the last one is not done yet
			}
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("sweep failed, it comes again", "error", err)
		}
	}
}

// tidyRounds is how many sweeps there are between two looks at what has ended long ago.
const tidyRounds = 20

// tidy looks at what has ended long ago. Each read and write is bounded, the whole is not.
func (w *Worker) tidy(ctx context.Context, now time.Time) error {
	return errors.Join(w.sweepRecords(ctx, now), w.sweepAsks(ctx), w.sweepPayloads(ctx, now), w.b.ClearPayloads(ctx, now.Add(-time.Hour)))
}

// sweepAsks closes asks of runs that have ended: a worker that died just then left them, and
// they would be shown to clients for ever.
func (w *Worker) sweepAsks(ctx context.Context) error {
	return w.closeLeftAsks(ctx, "", func(b subjects.AskBody) (bool, error) {
		var run subjects.RunRecord
		_, err := w.b.GetJSON(ctx, w.fleet.RunsBucket(), subjects.RunKey(b.Prompt), &run)
		if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrCorrupt) {
			return true, nil
		}
		return run.State.Ended(), err
	})
}

// electSweeper holds or takes the lease key.
func (w *Worker) electSweeper(ctx context.Context, rev uint64) (uint64, bool) {
	ctx, cancel := w.b.Bound(ctx, 0)
	defer cancel()
	bucket := w.fleet.NodesBucket()
	if rev == 0 {
		// A deleted or expired key leaves nothing behind that matters.
		have, err := w.b.Get(ctx, bucket, subjects.SweepKey)
		if err == nil {
			return 0, false
		}
		if !errors.Is(err, bus.ErrNotFound) {
			return 0, false
		}
		rev = have.Rev
	}
	next, err := w.b.PutJSON(ctx, bucket, subjects.SweepKey, w.instance, rev, 2*w.b.AckWait())
	if err != nil {
		return 0, false
	}
	return next, true
}

// sweepLanes publishes a baton for each lane with a backlog and none, and wakes lanes
// that have both: their owner may have missed the message.
func (w *Worker) sweepLanes(ctx context.Context) error {
	waiting, err := w.b.Subjects(ctx, w.fleet.BacklogStream(), w.fleet.BacklogAll())
	if err != nil {
		return err
	}
	if len(waiting) == 0 {
		return nil
	}
	ready, err := w.b.Subjects(ctx, w.fleet.ReadyStream(), w.fleet.ReadyAll())
	if err != nil {
		return err
	}
	have := make(map[subjects.LaneID]bool, len(ready))
	for _, s := range ready {
		if _, _, lane, err := w.fleet.ParseReady(s); err == nil {
			have[lane] = true
		}
	}
	for _, s := range waiting {
		r, lane, p, err := w.fleet.ParseBacklog(s)
		if err != nil {
			w.log.Error("a backlog subject that is none", "subject", s, "error", err)
			continue
		}
		if have[lane] {
			if err := w.b.Conn().Publish(w.fleet.Wake(r, lane, p), nil); err != nil {
				return err
			}
			continue
		}
		_, err = w.b.Publish(ctx, &nats.Msg{Subject: w.fleet.Ready(r, subjects.AnyClass, lane)})
		if err != nil && !errors.Is(err, bus.ErrFull) {
			return err
		}
	}
	return nil
}

// sweepRecords retires run records whose message is gone: a worker that died between
// the two left them.
func (w *Worker) sweepRecords(ctx context.Context, now time.Time) error {
	records, err := w.b.List(ctx, w.fleet.RunsBucket(), "*")
	if err != nil {
		return err
	}
	var old []bus.Record
	for _, rec := range records {
		var run subjects.RunRecord
		if rec.TTL == 0 && json.Unmarshal(rec.Value, &run) == nil && run.State.Ended() && now.Sub(run.Ended) > time.Minute {
			old = append(old, rec)
		}
	}
	if len(old) == 0 {
		return nil
	}
	waiting, err := w.waitingPrompts(ctx)
	if err != nil {
		return err
	}
	for _, rec := range old {
		p, _, err := subjects.ParseRunKey(rec.Key)
		if err != nil || waiting[p] {
			continue
		}
		if _, err := w.b.PutJSON(ctx, w.fleet.RunsBucket(), rec.Key, json.RawMessage(rec.Value), rec.Rev, subjects.RunTTL); err != nil && !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
	return nil
}

// sweepPayloads deletes bodies to which nothing refers any more: those of events that
// have aged out, and those of prompts that never came into the backlog or have left it.
func (w *Worker) sweepPayloads(ctx context.Context, now time.Time) error {
	list, err := w.b.Payloads(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	waiting, err := w.waitingPrompts(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		age := now.Sub(p.Stored)
		kind, _, _ := strings.Cut(p.Name, ".")
		var old bool
		switch kind {
		case "event", "outcome":
			old = age > subjects.EventsAge+time.Hour
		case "transcript": // as long as its session
		default: // named by its prompt
			old = age > time.Hour && !waiting[subjects.PromptID(p.Name)]
		}
		if !old {
			continue
		}
		if err := w.b.DeletePayload(ctx, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// waitingPrompts reads the ids of all prompts in the backlog.
func (w *Worker) waitingPrompts(ctx context.Context) (map[subjects.PromptID]bool, error) {
	out := map[subjects.PromptID]bool{}
	for from := uint64(1); ; {
		m, err := w.b.Next(ctx, w.fleet.BacklogStream(), w.fleet.BacklogAll(), from)
		if errors.Is(err, bus.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out[subjects.PromptID(m.Header.Get(subjects.HeaderPrompt))] = true
		from = m.Seq + 1
	}
}

// othersWaiting remembers for a moment whether batons wait that nobody takes.
type othersWaiting struct {
	mu   sync.Mutex // guards the rest
	at   time.Time
	wait bool
}

// othersWaitFor is how long an answer is good: a busy lane asks after each prompt.
const othersWaitFor = 50 * time.Millisecond

// othersWait says whether batons lie in READY that no worker has a place for.
func (w *Worker) othersWait(ctx context.Context) bool {
	o := &w.waiting
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.at) < othersWaitFor {
		return o.wait
	}
	ctx, cancel := w.b.Bound(ctx, 0)
	defer cancel()
	o.at, o.wait = time.Now(), false
	for name := range w.raiders {
		consumer := w.b.Layout().ReadyConsumer(name, subjects.AnyClass, 0).Name
		c, err := w.b.JetStream().Consumer(ctx, w.fleet.ReadyStream(), consumer)
		if err != nil {
			return false
		}
		if c.CachedInfo().NumPending > 0 {
			o.wait = true
			return true
		}
	}
	return false
}

// msgTTL is the option for a message that ends by itself.
func msgTTL(ttl time.Duration) []jetstream.PublishOpt {
	if ttl == 0 {
		return nil
	}
	return []jetstream.PublishOpt{jetstream.WithMsgTTL(ttl)}
}

func unclear(err error) bool { return !errors.Is(err, errRunOver) && bus.Unclear(err) }

// safeText is an error's text without what may hold content of clients.
func safeText(err error) string {
	text := err.Error()
	if len(text) > 500 {
		text = text[:500] + "…"
	}
	return text
}

// bounded is ctx with a time limit that needs no cancel: it ends by itself.
func bounded(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}
