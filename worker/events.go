package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

const (
	// maxEventsInFlight bounds the events that are published and not yet acknowledged.
	maxEventsInFlight = 512
	// eagerEvents are published at once, whatever they hold. While that many are on their
	// way, the updates that come are gathered into one event: a message for each would cost
	// ten times what the raider's pipe does, and a client sees them no later.
	eagerEvents = 4
	// maxGathered bounds the updates of one event in bytes; it is below any max_payload.
	maxGathered = 64 << 10
	// enoughGathered is published without waiting for what is on its way.
	enoughGathered = maxGathered / 2
	// maxEventBytes bounds the bytes of the events that wait or are in flight; a raider
	// that is faster than NATS is slowed down by its pipe.
	maxEventBytes = 16 << 20
)

// eventLog publishes a lane's events in order, each acknowledged: published without,
// up to 13 % of a burst got lost without an error.
//
// After a failed publish it stops, waits for what is in flight, and goes on from the
// first failure. Readers order by (epoch, n) and pass over second copies.
type eventLog struct {
	l *lane

	mu     sync.Mutex // guards the rest
	queue  []*event
	bytes  int
	n      map[subjects.SessionID]uint64 // given to the session's last event
	index  uint64                        // of the last event of all
	at     time.Time                     // of the last event
	acked  uint64                        // index of the last event that is stored with all before it
	change chan struct{}
	more   chan struct{} // capacity 1: the queue has something
}

type event struct {
	session subjects.SessionID
	header  subjects.EventHeader
	index   uint64
	body    []byte
	stored  func(seq uint64) // called in order, after the acknowledgement
	grown   bool             // body is ours to append to
}

// gathers says whether an update may join ev.
func (ev *event) gathers(session subjects.SessionID, kind subjects.EventKind, prompt subjects.PromptID, body []byte) bool {
	return kind == subjects.EventUpdate && ev.header.Kind == kind && ev.session == session &&
		ev.header.Prompt == prompt && len(ev.body)+1+len(body) <= maxGathered
}

// gather adds an update to ev.
func (ev *event) gather(body []byte) {
	if !ev.grown {
		// The first update's text is the raider's line: not to be written behind.
		ev.body = append(make([]byte, 0, 4*(len(ev.body)+len(body))), ev.body...)
		ev.grown = true
	}
	ev.body = append(append(ev.body, '\n'), body...)
}

func newEventLog(l *lane) *eventLog {
	return &eventLog{l: l, n: map[subjects.SessionID]uint64{}, change: make(chan struct{}), more: make(chan struct{}, 1)}
}

// append queues an event, an update perhaps as a part of one that waits. It blocks while
// too many bytes wait, and fails when the lane has ended. stored is the same for all
// updates of a prompt.
func (e *eventLog) append(session subjects.SessionID, kind subjects.EventKind, prompt subjects.PromptID, body []byte, stored func(uint64)) error {
	epoch := e.l.owner().Epoch // before e.mu: whoever holds the lane's lock may want it
	for {
		e.mu.Lock()
		if e.bytes == 0 || e.bytes+len(body) <= maxEventBytes {
			if n := len(e.queue); n > 0 && (stored == nil) == (e.queue[n-1].stored == nil) && e.queue[n-1].gathers(session, kind, prompt, body) {
				before := len(e.queue[n-1].body)
				e.queue[n-1].gather(body)
				e.bytes += 1 + len(body)
				e.at = time.Now()
				full := before < enoughGathered && before+1+len(body) >= enoughGathered
				e.mu.Unlock()
				if full {
					signal(e.more)
				}
				return nil
			}
			// Counted by session: on a slot a reader sees only its own session's events
			// and must find no hole in them.
			e.n[session]++
			e.index++
			e.at = time.Now()
			e.bytes += len(body)
			e.queue = append(e.queue, &event{
				session: session, index: e.index, body: body, stored: stored,
				header: subjects.EventHeader{Kind: kind, Prompt: prompt, Epoch: epoch, N: e.n[session], Worker: e.l.w.instance},
			})
			e.mu.Unlock()
			signal(e.more)
			return nil
		}
		change := e.change
		e.mu.Unlock()
		select {
		case <-change:
		case <-e.l.ctx.Done():
			return context.Cause(e.l.ctx)
		}
	}
}

// last is the n of the session's last event.
func (e *eventLog) last(session subjects.SessionID) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n[session]
}

// lastTime is when the last event was appended.
func (e *eventLog) lastTime() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// flush returns when all events that were appended before are stored, or the lane has
// ended.
func (e *eventLog) flush() error {
	e.mu.Lock()
	index := e.index
	e.mu.Unlock()
	for {
		e.mu.Lock()
		done, change := e.acked >= index, e.change
		e.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-change:
		case <-e.l.ctx.Done():
			return context.Cause(e.l.ctx)
		}
	}
}

type inFlight struct {
	ev  *event
	ack jetstream.PubAckFuture // nil when it could not be sent
}

// run publishes until the lane ends.
func (e *eventLog) run() {
	var window []inFlight
	for {
		for len(window) < maxEventsInFlight {
			ev := e.take(len(window))
			if ev == nil {
				break
			}
			f := inFlight{ev: ev}
			if m, err := e.message(ev); err == nil {
				f.ack, err = e.l.w.b.JetStream().PublishMsgAsync(m)
				if err != nil {
					f.ack = nil
				}
			}
			window = append(window, f)
			if f.ack == nil {
				break
			}
		}
		var more chan struct{}
		if len(window) < maxEventsInFlight {
			more = e.more
		}
		if len(window) == 0 {
			select {
			case <-more:
			case <-e.l.ctx.Done():
				return
			}
			continue
		}
		if window[0].ack == nil {
			if e.again(window) != nil {
				return
			}
			window = nil
			continue
		}
		select {
		case ack := <-window[0].ack.Ok():
			e.stored(window[0].ev, ack.Sequence)
			window = window[1:]
		case <-window[0].ack.Err(): //nolint:errcheck // whatever it is, the publish is repeated
			if e.again(window) != nil {
				return
			}
			window = nil
		case <-more:
		case <-e.l.ctx.Done():
			return
		}
	}
}

// take is the next event to publish; nil while there is none, or while it is gathered and
// enough is on its way.
func (e *eventLog) take(inFlight int) *event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		return nil
	}
	if len(e.queue) == 1 && inFlight >= eagerEvents && e.queue[0].header.Kind == subjects.EventUpdate && len(e.queue[0].body) < enoughGathered {
		return nil
	}
	ev := e.queue[0]
	e.queue = e.queue[1:]
	return ev
}

func (e *eventLog) stored(ev *event, seq uint64) {
	if ev.stored != nil {
		ev.stored(seq)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes -= len(ev.body)
	e.acked = ev.index
	close(e.change)
	e.change = make(chan struct{})
}

// again publishes the window once more after its first publish failed: first all that
// is in flight is answered one way or the other, then one after the other, in order.
func (e *eventLog) again(window []inFlight) error {
	for _, f := range window[1:] {
		if f.ack == nil {
			continue
		}
		select {
		case <-f.ack.Ok():
		case <-f.ack.Err(): //nolint:errcheck // as above
		case <-e.l.ctx.Done():
			return context.Cause(e.l.ctx)
		}
	}
	for _, f := range window {
		var seq uint64
		err := e.l.do(func(ctx context.Context) error {
			m, err := e.message(f.ev)
			if err != nil {
				return err
			}
			seq, err = e.l.w.b.Publish(ctx, m)
			return err
		})
		if err != nil {
			if e.l.ctx.Err() == nil {
				// A refusal that repeating does not change: the stream takes no more.
				e.l.w.log.Error("event can't be stored", "lane", string(e.l.id), "error", err)
				e.l.lose("its events can't be stored")
			}
			return err
		}
		e.stored(f.ev, seq)
	}
	return nil
}

// message renders an event; a large body goes to the object store first. Where that is full
// by a bound of its own, and so may be for ever, a note stands for the body.
func (e *eventLog) message(ev *event) (*nats.Msg, error) {
	b := e.l.w.b
	body, h := ev.body, ev.header
	if len(body) > b.MaxInline() {
		h.Payload = fmt.Sprintf("event.%s.%d.%d", ev.session, h.Epoch, h.N)
		err := b.PutPayload(e.l.ctx, h.Payload, body)
		switch {
		case errors.Is(err, bus.ErrFull):
			h.Payload = ""
			body = unstored(ev.session, h.Kind, len(body))
		case err != nil:
			return nil, err
		default:
			body = nil
		}
	}
	return &nats.Msg{Subject: e.l.w.fleet.Event(ev.session), Header: h.Header(), Data: body}, nil
}

// unstored stands for an event whose body could not be kept.
func unstored(s subjects.SessionID, kind subjects.EventKind, size int) []byte {
	text := fmt.Sprintf("[%d bytes of this conversation could not be kept: PAYLOADS is full]", size)
	if kind != subjects.EventUser {
		return subjects.TextChunk(s, "agent_thought_chunk", "", text)
	}
	block := json.RawMessage(`[{"type":"text","text":` + string(quote(text)) + `}]`)
	body, err := json.Marshal(subjects.UserMessage{Prompt: block})
	if err != nil {
		return []byte(`{}`)
	}
	return body
}

// do repeats f while the lane is ours, until it succeeds or is refused. Each try is
// bounded, and begins only when the lane is confirmed on the present link.
func (l *lane) do(f func(context.Context) error) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if err := l.hold(l.ctx); err != nil {
			return err
		}
		bound, cancel := l.w.b.Bound(l.ctx, l.w.b.AckWait()/3)
		err := f(bound)
		cancel()
		if err == nil || !unclear(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return context.Cause(l.ctx)
		}
	}
}

// lost says whether err means that the lane is no longer ours.
func (l *lane) lost(err error) bool {
	return l.ctx.Err() != nil && (errors.Is(err, context.Cause(l.ctx)) || errors.Is(err, context.Canceled))
}
