package frontdoor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// loadSession answers session/load: the conversation first, then the response, then
// what comes. From any front door, and in mid-turn too.
func (c *conn) loadSession(ctx context.Context, r *rpc.Request) error {
	return c.comeBack(ctx, r, false)
}

// resumeSession answers session/resume: as session/load, without the conversation.
func (c *conn) resumeSession(ctx context.Context, r *rpc.Request) error {
	return c.comeBack(ctx, r, true)
}

func (c *conn) comeBack(ctx context.Context, r *rpc.Request, silent bool) error {
	id, err := sessionOf(r.Params)
	if err != nil {
		return err
	}
	p, err := parseSessionParams(r.Params)
	if err != nil {
		return err
	}
	m, err := c.reopen(ctx, id, p)
	if err != nil {
		return err
	}
	for {
		a, err := c.attach(m.Session)
		if err != nil {
			return err
		}
		l := &loading{req: r, silent: silent, done: make(chan struct{}), over: map[subjects.AskID]bool{}, ends: map[subjects.PromptID]bool{}}
		// Nothing that is live comes before the conversation, where nothing did yet.
		first := a.open(&m, false, l)
		if err := a.wait(ctx); err != nil {
			if errors.Is(err, context.Canceled) && c.ctx.Err() == nil && ctx.Err() == nil {
				continue // closed meanwhile: once more
			}
			return err
		}
		if !first {
			select {
			case a.follow.loads <- l:
			case <-a.ctx.Done():
				close(l.done)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		<-l.done
		if l.answered {
			return nil
		}
		if c.ctx.Err() != nil { // else closed meanwhile, as above
			return rpc.ErrClosed
		}
	}
}

// reopen makes a session open, with the client's MCP servers. One that is being closed is
// closed first, since a front door that died over it may have left it so; it is refused
// when that takes more than ack_wait.
func (c *conn) reopen(ctx context.Context, id string, p sessionParams) (subjects.SessionMeta, error) {
	bound, cancel := context.WithTimeout(ctx, c.f.b.AckWait())
	defer cancel()
	for {
		m, err := c.setState(ctx, id, func(m *subjects.SessionMeta) bool {
			if m.Cwd != p.Cwd || m.State == subjects.SessionClosing || m.State == subjects.SessionDeleted {
				return false
			}
			changed := m.State != subjects.SessionOpen || string(m.MCPServers) != string(p.MCPServers)
			m.State, m.MCPServers = subjects.SessionOpen, p.MCPServers
			return changed
		})
		switch {
		case err != nil:
			return m, err
		case m.State == subjects.SessionDeleted:
			return m, sessionNotFound(id)
		case m.Cwd != p.Cwd:
			return m, invalidParams("cwd is not the session's")
		case m.State != subjects.SessionClosing:
			return m, nil
		}
		if err := c.endSession(bound, m); err != nil {
			if bound.Err() != nil && ctx.Err() == nil {
				return m, sessionClosing(m.Session)
			}
			return m, err
		}
	}
}

// replay shows the whole conversation: TRANSCRIPT, and from EVENTS what it does not
// cover. It answers the load, unless ctx ends: what was shown by then is not all.
func (w *follower) replay(ctx context.Context, l *loading) {
	defer close(l.done)
	w.load = l
	defer func() { w.load = nil }()
	if l.silent {
		w.load = nil
		w.catchUp(ctx, math.MaxUint64)
		w.finishLoad(ctx, l)
		return
	}
	emit := func(e event) { w.deliver(ctx, e) }
	covered := uint64(0)
	w.order.base(0, 0)
	subject := w.f.fleet.Transcript(w.a.session)
	for from := uint64(1); ; {
		m, err := w.transcript(ctx, subject, from)
		if errors.Is(err, bus.ErrNotFound) {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.answered = true
			answerError(w.a.log, l.req, w.f.fault(err, "session", string(w.a.session)))
			return
		}
		from = m.Seq + 1
		entry, ok := w.entry(ctx, m)
		if !ok {
			continue
		}
		// Between two runs there may be updates, and runs whose worker was lost.
		w.between(ctx, covered, entry)
		w.parts(ctx, entry)
		w.a.notify(entry.Updates...)
		if entry.Outcome != nil {
			w.tellEnd(entry.Prompt, *entry.Outcome)
		}
		covered = max(covered, entry.Last)
		if out := entry.Outcome; out != nil && out.LastEpoch != 0 {
			w.order.base(out.LastEpoch, out.LastN)
		}
	}
	w.cursor = covered
	w.catchUp(ctx, math.MaxUint64)
	w.order.settle(emit)
	w.order.adopt(emit)
	w.load = nil
	w.showWaiting(ctx)
	w.finishLoad(ctx, l)
}

// finishLoad shows the open asks and answers.
func (w *follower) finishLoad(ctx context.Context, l *loading) {
	w.showOpenAsks(ctx, l)
	if ctx.Err() != nil {
		return
	}
	l.answered = true
	meta, agent, err := w.chosen(ctx)
	if err != nil {
		answerError(w.a.log, l.req, w.f.fault(err, "session", string(w.a.session)))
		return
	}
	result := map[string]any{}
	w.a.show(result, w.f.settingsOf(meta, agent))
	if l.incomplete {
		result["_meta"] = map[string]any{"raiderfleet/incomplete": true}
	}
	answer(w.a.log, l.req, result)
	if len(agent.Commands) > 0 {
		w.a.update(agent.Commands) // whoever comes late has missed it
	}
}

// chosen reads what the session's modes and options are.
func (w *follower) chosen(ctx context.Context) (subjects.SessionMeta, subjects.SessionAgent, error) {
	var meta subjects.SessionMeta
	var metaErr error
	var reading sync.WaitGroup
	reading.Go(func() { meta, _, metaErr = w.a.c.meta(ctx, string(w.a.session)) })
	agent, err := w.f.agentOf(ctx, w.a.c.principal, w.a.session)
	reading.Wait()
	if agent.InnerID == "" {
		w.f.refresh(ctx) // nothing but the raider's is known
	}
	return meta, agent, cmp.Or(metaErr, err)
}

// transcript reads the next entry of the session's transcript.
func (w *follower) transcript(ctx context.Context, subject string, from uint64) (m bus.Message, err error) {
	err = w.f.retry(ctx, func(ctx context.Context) error {
		m, err = w.f.b.Next(ctx, w.f.fleet.TranscriptStream(), subject, from)
		return err
	})
	return m, err
}

// parts shows what of an entry is in PAYLOADS, one after the other: a run may be of any length.
func (w *follower) parts(ctx context.Context, entry subjects.TranscriptEntry) {
	for _, name := range entry.Parts {
		var updates []json.RawMessage
		body, err := w.payload(ctx, name)
		if err == nil {
			err = json.Unmarshal(body, &updates)
		}
		switch {
		case err == nil:
			w.a.notify(updates...)
		case ctx.Err() == nil:
			w.a.log.Warn("a part of a transcript is missing", "part", name, "error", err)
			w.incomplete(subjects.EventHeader{Kind: subjects.EventUpdate})
		}
	}
}

func (w *follower) entry(ctx context.Context, m bus.Message) (subjects.TranscriptEntry, bool) {
	var entry subjects.TranscriptEntry
	body := m.Data
	if ref := m.Header.Get(subjects.HeaderPayload); ref != "" {
		var err error
		if body, err = w.payload(ctx, ref); err != nil {
			if ctx.Err() != nil {
				return entry, false
			}
			w.a.log.Warn("transcript entry is missing", "seq", m.Seq, "error", err)
			w.incomplete(subjects.EventHeader{Kind: subjects.EventUpdate})
			return entry, false
		}
	}
	if err := json.Unmarshal(body, &entry); err != nil {
		w.a.log.Warn("a transcript entry that is none", "seq", m.Seq)
		w.incomplete(subjects.EventHeader{Kind: subjects.EventUpdate})
		return entry, false
	}
	return entry, true
}

// between shows the events after a sequence and before what an entry covers. An entry
// begins at the copy of its run's first event that its owner was told of. Copies that were
// stored before, and whose acknowledgement was lost, are of the same run: the entry has it.
func (w *follower) between(ctx context.Context, after uint64, entry subjects.TranscriptEntry) {
	if entry.First <= after+1 {
		return
	}
	emit := func(e event) { w.deliver(ctx, e) }
	for w.cursor = after; ; {
		m, err := w.next(ctx, w.cursor+1)
		if err != nil || m.Seq >= entry.First {
			break
		}
		h, err := subjects.ParseEventHeader(m.Header)
		if err == nil && h.Prompt == entry.Prompt && (entry.Outcome == nil || h.Epoch == entry.Outcome.LastEpoch) {
			w.cursor = m.Seq
			continue
		}
		w.take(ctx, m.Seq, m.Header, m.Data)
	}
	w.order.settle(emit)
	w.order.skip(emit)
}

// showOpenAsks shows what the raider still waits for.
func (w *follower) showOpenAsks(ctx context.Context, l *loading) {
	bound, cancel := w.f.b.Bound(ctx, w.f.b.AckWait()/3)
	defer cancel()
	stored, err := w.f.b.List(bound, w.f.fleet.AsksBucket(), subjects.AskFilter(w.a.session))
	if err != nil && ctx.Err() == nil {
		w.a.log.Warn("open asks not found", "error", err)
	}
	asks := l.asks
	for _, rec := range stored {
		var b subjects.AskBody
		if json.Unmarshal(rec.Value, &b) == nil && b.Principal == w.a.c.principal {
			asks = append(asks, b)
		}
	}
	for _, b := range asks {
		if !l.over[b.Ask] && (b.Deadline.IsZero() || time.Now().Before(b.Deadline)) {
			w.a.showAsk(ctx, b) // once, if it is in both
		}
	}
}

func (l *loading) open(b subjects.AskBody) { l.asks = append(l.asks, b) }

func (l *loading) close(id subjects.AskID) { l.over[id] = true }

// ended closes the asks of a prompt that has ended.
func (l *loading) ended(p subjects.PromptID) {
	for _, b := range l.asks {
		if b.Prompt == p {
			l.over[b.Ask] = true
		}
	}
}
