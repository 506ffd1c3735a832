package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

const (
	// The bounds of what is kept for a client that reads slowly. What is beyond them is
	// read from EVENTS when the client gets there.
	liveMessages = 4096
	liveBytes    = 16 << 20
	// heldEvery and heldFor: how often and how long EVENTS is looked at again for what
	// belongs before an outcome.
	heldEvery = 50 * time.Millisecond
	heldFor   = time.Second
	// retryReads is the pause after EVENTS or a body could not be read for an ack_wait.
	retryReads = time.Second
	// maxRecords bounds the run records that are read in one go.
	maxRecords = 64
	// placeDelay is how long a prompt may wait before it is told its place: most start
	// at once. placeEvery is how often it is told again.
	placeDelay = 100 * time.Millisecond
	placeEvery = 5 * time.Second
)

// position names an event by its owner's epoch and its number there.
type position struct{ epoch, n uint64 }

// follower writes a session's events to the client. One goroutine does it all, in the
// order of order.
type follower struct {
	a       *attachment
	f       *FrontDoor
	subject string
	live    chan *nats.Msg
	loads   chan *loading
	placed  chan []queuePlace
	sub     *nats.Subscription
	shown   atomic.Pointer[position] // up to where the session's events have been passed on

	// Of run's goroutine.
	cursor    uint64 // sequence in EVENTS up to which everything has been taken
	order     order
	dropped   int
	heldSince time.Time
	holeSince time.Time
	started   subjects.PromptID // the last prompt of which an event was seen
	ended     subjects.PromptID // the last prompt that was answered here
	told      subjects.PromptID // the last prompt whose end was told otherwise
	load      *loading          // set while a session/load is replayed
}

func newFollower(a *attachment) *follower {
	return &follower{
		a: a, f: a.f, subject: a.f.fleet.Event(a.session),
		live: make(chan *nats.Msg), loads: make(chan *loading), placed: make(chan []queuePlace),
	}
}

// start subscribes and finds out where the session's events are. fresh: it has none.
func (w *follower) start(ctx context.Context, fresh bool) error {
	sub, err := w.f.b.Conn().Subscribe(w.f.fleet.Live(w.a.session), func(m *nats.Msg) {
		select {
		case w.live <- m:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return fmt.Errorf("follow session: %w", err)
	}
	w.sub = sub
	if err := sub.SetPendingLimits(liveMessages, liveBytes); err != nil {
		return fmt.Errorf("follow session: %w", err)
	}
	if fresh {
		return nil
	}
	var last bus.Message
	err = w.f.retry(ctx, func(ctx context.Context) error {
		var err error
		last, err = w.f.b.Last(ctx, w.f.fleet.EventsStream(), w.subject)
		return err
	})
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	w.cursor, w.order.unknown = last.Seq, true
	if h, err := subjects.ParseEventHeader(last.Header); err == nil && max(h.Epoch, h.LastEpoch) > 0 {
		w.order.base(max(h.Epoch, h.LastEpoch), max(h.N, h.LastN))
		w.shown.Store(&position{max(h.Epoch, h.LastEpoch), max(h.N, h.LastN)})
	}
	return nil
}

func (w *follower) unsubscribe() {
	if w.sub == nil {
		return
	}
	if err := w.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		w.a.log.Debug("subscription not ended", "error", err)
	}
}

// run follows until ctx ends; first, if not nil, is shown before what is live.
func (w *follower) run(ctx context.Context, first *loading) {
	link := w.f.b.Link()
	lost := link.Done()
	var restored <-chan struct{}
	tick := time.NewTicker(w.f.b.AckWait())
	defer tick.Stop()
	held := time.NewTimer(time.Hour)
	defer held.Stop()
	place := time.NewTimer(time.Hour)
	defer place.Stop()
	walking, again, armed := false, false, false
	if first != nil {
		w.replay(ctx, first)
	}
	for {
		if len(w.order.held) > 0 && !armed {
			armed = true
			held.Reset(heldEvery)
		}
		select {
		case <-ctx.Done():
			return
		case m := <-w.live:
			w.takeLive(ctx, m)
		case <-lost:
			lost, restored = nil, w.f.b.Up()
		case <-restored:
			restored, lost = nil, w.f.b.Link().Done()
			w.catchUp(ctx, math.MaxUint64)
			w.records(ctx)
		case <-tick.C:
			if w.a.openTurns() > 0 {
				w.records(ctx)
			}
			w.holes(ctx)
		case <-w.a.pokes:
			w.records(ctx)
		case l := <-w.loads:
			w.replay(ctx, l)
		case <-held.C:
			armed = false
			w.settleHeld(ctx)
		case <-w.a.waits:
			place.Reset(placeDelay)
		case <-place.C:
			if len(w.a.waitingTurns()) == 0 {
				continue
			}
			// A cluster takes a moment to learn of a subscription: what was stored in it
			// did not come live.
			w.catchUp(ctx, math.MaxUint64)
			if walking {
				again = true
				continue
			}
			walking = w.a.c.spawn(func() { w.walk(ctx) })
		case p := <-w.placed:
			walking = false
			w.tellPlaces(p)
			if again {
				again = false
				place.Reset(placeDelay)
			} else {
				place.Reset(placeEvery)
			}
		}
	}
}

// takeLive takes a stored event that was published again.
func (w *follower) takeLive(ctx context.Context, m *nats.Msg) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		w.a.log.Warn("live event without a sequence", "subject", m.Subject)
		return
	}
	if dropped, err := w.sub.Dropped(); err == nil && dropped != w.dropped {
		// The client reads more slowly than the session writes.
		w.dropped = dropped
		w.catchUp(ctx, seq)
	}
	if seq <= w.cursor {
		return
	}
	// 0: nothing is stored before it, or not any more.
	last, _ := strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64)
	if last > w.cursor {
		w.catchUp(ctx, seq)
		if seq <= w.cursor {
			return
		}
	}
	w.take(ctx, seq, m.Header, m.Data)
}

// take puts an event of the stream in order and delivers what is due.
func (w *follower) take(ctx context.Context, seq uint64, header nats.Header, data []byte) {
	w.cursor = seq
	h, err := subjects.ParseEventHeader(header)
	if err != nil {
		w.a.log.Warn("an event that is none", "seq", seq, "error", err)
		return
	}
	w.order.add(event{seq: seq, header: h, data: data}, func(e event) { w.deliver(ctx, e) })
	w.shown.Store(&position{w.order.epoch, w.order.n})
	if len(w.order.held) == 0 {
		w.heldSince = time.Time{}
	} else if w.heldSince.IsZero() {
		w.heldSince = time.Now()
	}
}

// settleHeld looks for what belongs before a held outcome, and goes on without it when
// it is not in EVENTS.
func (w *follower) settleHeld(ctx context.Context) {
	w.catchUp(ctx, math.MaxUint64)
	if len(w.order.held) > 0 && time.Since(w.heldSince) >= heldFor {
		w.order.settle(func(e event) { w.deliver(ctx, e) })
		w.heldSince = time.Time{}
	}
}

// holes passes over what has been missing for more than ack_wait: its owner would have
// published it again or been lost.
func (w *follower) holes(ctx context.Context) {
	switch {
	case len(w.order.pending) == 0:
		w.holeSince = time.Time{}
	case w.holeSince.IsZero():
		w.holeSince = time.Now()
	case time.Since(w.holeSince) >= w.f.b.AckWait():
		w.catchUp(ctx, math.MaxUint64)
		w.order.skip(func(e event) { w.deliver(ctx, e) })
		w.holeSince = time.Time{}
	}
}

// records reads the run records of the open turns: the record is the truth, an event may
// have been missed.
func (w *follower) records(ctx context.Context) {
	w.a.mu.Lock()
	var open []*turn
	for _, t := range w.a.turns {
		if t.published && len(open) < maxRecords {
			open = append(open, t)
		}
	}
	w.a.mu.Unlock()
	for _, t := range open {
		bound, done := w.f.b.Bound(ctx, 0)
		var rec subjects.RunRecord
		_, err := w.f.b.GetJSON(bound, w.f.fleet.RunsBucket(), subjects.RunKey(t.prompt), &rec)
		done()
		if isGone(err) {
			w.f.miss(err)
			if w.lost(ctx, t) {
				w.a.log.Error("NATS has lost a prompt", "prompt", string(t.prompt))
				w.conclude(t.prompt, subjects.Outcome{State: subjects.RunFailed, Error: &subjects.RunError{
					Message: "NATS has lost this prompt with its store; whether it ran, and how far, is not known",
				}})
			}
			continue // it waits
		}
		if err != nil {
			return // it comes again
		}
		if !rec.State.Ended() {
			continue
		}
		w.a.mu.Lock()
		withdrawn := !t.accepted && !t.cancelled && rec.Owner.Instance == ""
		w.a.mu.Unlock()
		if withdrawn {
			continue // by the submitter, who gives up and has more to say than 'cancelled'
		}
		w.catchUp(ctx, math.MaxUint64)
		if w.a.turn(t.prompt) != t || ctx.Err() != nil {
			continue
		}
		out := subjects.Outcome{Prompt: t.prompt, State: rec.State}
		if rec.Outcome != nil {
			out = *rec.Outcome
		}
		// From here on nothing of an older owner is shown.
		w.order.take(out.LastEpoch, out.LastN, func(e event) { w.deliver(ctx, e) })
		w.conclude(t.prompt, w.whole(ctx, out))
	}
}

// isGone says of a read that there is nothing, not even the stream.
func isGone(err error) bool { return errors.Is(err, bus.ErrNotFound) || bus.NoStream(err) }

// lost says of a turn without a record whether its prompt has gone with the store: it was
// accepted, its message is not there, and a record isn't there afterwards either, which is
// written before the message goes and stays for a day. It is seen twice: a server that is
// just starting says of much that it is not there.
func (w *follower) lost(ctx context.Context, t *turn) bool {
	w.a.mu.Lock()
	meta, seq, accepted := t.meta, t.seq, t.accepted
	w.a.mu.Unlock()
	if !accepted {
		return false // its submitter knows what becomes of it
	}
	bound, done := w.f.b.Bound(ctx, w.f.b.AckWait()/3)
	defer done()
	gone := w.vanished(bound, meta, t.prompt, seq)
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	switch {
	case !gone:
		t.lost = time.Time{}
	case t.lost.IsZero():
		t.lost = time.Now()
	default:
		return time.Since(t.lost) >= w.f.b.AckWait()/2
	}
	return false
}

// vanished says whether a prompt has neither a message nor a record. With no sequence known
// (0) the whole lane is looked through.
func (w *follower) vanished(ctx context.Context, meta subjects.SessionMeta, p subjects.PromptID, seq uint64) bool {
	stream, lane := w.f.fleet.BacklogStream(), w.f.fleet.BacklogLane(meta.Raider, meta.Lane)
	for from := max(seq, 1); ; {
		m, err := w.f.b.Next(ctx, stream, lane, from)
		if isGone(err) {
			break
		}
		if err != nil || m.Header.Get(subjects.HeaderPrompt) == string(p) {
			return false
		}
		if seq != 0 {
			break // it is another's
		}
		from = m.Seq + 1
	}
	_, err := w.f.b.Get(ctx, w.f.fleet.RunsBucket(), subjects.RunKey(p))
	return isGone(err)
}

// deliver writes an event to the client.
func (w *follower) deliver(ctx context.Context, e event) {
	h := e.header
	if h.Prompt != "" && h.Prompt != w.started && h.Kind != subjects.EventOutcome {
		w.started = h.Prompt
		w.markStarted(h.Prompt)
	}
	body := e.data
	if h.Payload != "" {
		var err error
		if body, err = w.payload(ctx, h.Payload); err != nil {
			if ctx.Err() == nil {
				w.a.log.Warn("event's body is missing", "seq", e.seq, "error", err)
				w.incomplete(h)
			}
			return
		}
	}
	switch h.Kind {
	case subjects.EventUpdate:
		if w.load != nil || h.Prompt == "" || h.Prompt != w.ended {
			w.a.notify(slices.Collect(subjects.Updates(body))...)
		}
	case subjects.EventUser:
		w.user(body)
	case subjects.EventAsk:
		w.ask(ctx, body)
	case subjects.EventAskDone:
		var d subjects.AskDone
		if json.Unmarshal(body, &d) == nil {
			w.askDone(d.Ask)
		}
	case subjects.EventOutcome:
		var out subjects.Outcome
		if err := json.Unmarshal(body, &out); err != nil {
			w.a.log.Warn("an outcome that is none", "seq", e.seq)
			signal(w.a.pokes) // the record has it
			return
		}
		w.conclude(h.Prompt, w.whole(ctx, out))
	case subjects.EventNote:
		w.note(body)
	case subjects.EventSettings:
		w.settings(body)
	case subjects.EventExtension:
		w.toClient(body)
	default: // of a newer version
	}
}

func (w *follower) conclude(p subjects.PromptID, out subjects.Outcome) {
	if w.load != nil {
		w.load.ended(p)
	}
	if t := w.a.turn(p); t != nil {
		w.ended = p
		w.a.conclude(t, out)
		return
	}
	w.a.withdrawAsks(p)
	w.tellEnd(p, out)
}

func (w *follower) markStarted(p subjects.PromptID) {
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	for _, t := range w.a.turns {
		if t.prompt == p {
			t.started = true
		}
	}
}

// whole is an outcome with what was too large for its message. Where that is missing the
// cut one has to do.
func (w *follower) whole(ctx context.Context, out subjects.Outcome) subjects.Outcome {
	if out.Payload == "" {
		return out
	}
	body, err := w.payload(ctx, out.Payload)
	full := out
	if err != nil || json.Unmarshal(body, &full) != nil {
		w.a.log.Warn("an outcome is not available whole", "prompt", string(out.Prompt), "error", err)
		return out
	}
	return full
}

// payload reads a body from the object store, and waits for NATS as long as it takes: only
// the store itself can say that the body is gone. The error is that, or ctx's.
func (w *follower) payload(ctx context.Context, ref string) (body []byte, err error) {
	for {
		err = w.f.retry(ctx, func(context.Context) error {
			// A large body takes longer than one request.
			body, err = w.f.b.GetPayload(ctx, ref)
			return err
		})
		if err == nil || !bus.Unclear(err) || ctx.Err() != nil {
			return body, err
		}
		w.a.log.Warn("an event's body can't be read", "error", err)
		if !sleep(ctx, retryReads) {
			return nil, ctx.Err()
		}
	}
}

// incomplete shows that something is missing.
func (w *follower) incomplete(h subjects.EventHeader) {
	if w.load != nil {
		w.load.incomplete = true
	}
	if h.Kind == subjects.EventUpdate || h.Kind == subjects.EventUser {
		w.a.notify(subjects.TextChunk(w.a.session, "agent_thought_chunk", "", "[a part of this conversation is not available any more]"))
	}
	if h.Kind == subjects.EventOutcome {
		signal(w.a.pokes)
	}
}

// user shows a user's message to the clients that have not sent it.
func (w *follower) user(body []byte) {
	var m subjects.UserMessage
	if json.Unmarshal(body, &m) != nil {
		return
	}
	if w.load == nil && m.Origin == string(w.f.instance)+" "+string(w.a.id) {
		return
	}
	var blocks []json.RawMessage
	if json.Unmarshal(m.Prompt, &blocks) != nil {
		return
	}
	for _, b := range blocks {
		w.a.notify(subjects.UserChunk(w.a.session, b))
	}
}

// note tells a client what the fleet has to say of its session.
func (w *follower) note(body []byte) {
	if json.Valid(body) {
		w.a.info("raiderfleet/note", body)
	}
}

// info writes a session_info_update that carries one member of _meta.
func (a *attachment) info(key string, value json.RawMessage) {
	a.notify(object(map[string]any{
		"sessionId": a.session,
		"update": map[string]any{
			"sessionUpdate": "session_info_update",
			"_meta":         map[string]json.RawMessage{key: value},
		},
	}))
}

func (w *follower) ask(ctx context.Context, body []byte) {
	var b subjects.AskBody
	if err := json.Unmarshal(body, &b); err != nil || b.Session != w.a.session {
		return
	}
	if w.load != nil {
		w.load.open(b) // shown at the end, if it is open then
		return
	}
	w.a.showAsk(ctx, b)
}

func (w *follower) askDone(id subjects.AskID) {
	if w.load != nil {
		w.load.close(id)
	}
	w.a.askDone(id)
}

// loading is a session/load that is being answered.
type loading struct {
	req        *rpc.Request
	silent     bool // session/resume: nothing is shown again
	done       chan struct{}
	answered   bool // when done
	incomplete bool
	asks       []subjects.AskBody // seen in the replay
	over       map[subjects.AskID]bool
	ends       map[subjects.PromptID]bool // whose ends were told, or are none to tell
}
