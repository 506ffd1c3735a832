package frontdoor

import (
	"context"
	"errors"
	"slices"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// maxAnswered bounds the prompts that an attachment remembers to have answered.
const maxAnswered = 256

// turnEnd is what a client is told of the end of a turn that it has no answer to: one that
// another client has sent, or an earlier one.
type turnEnd struct {
	Prompt     subjects.PromptID `json:"prompt"`
	Outcome    subjects.RunState `json:"outcome"`
	StopReason string            `json:"stopReason,omitempty"`
	Error      string            `json:"error,omitempty"`
	Worker     subjects.Instance `json:"worker,omitempty"`
}

// tellEnd tells how another client's turn ended, once. In a conversation that is shown
// again only an end that is none of the agent's own is told.
func (w *follower) tellEnd(p subjects.PromptID, out subjects.Outcome) {
	if p == "" || p == w.told || w.a.hasAnswered(p) {
		return
	}
	w.told = p
	if l := w.load; l != nil {
		if l.ends[p] {
			return
		}
		l.ends[p] = true
		if out.State == subjects.RunCompleted {
			return
		}
	}
	end := turnEnd{Prompt: p, Outcome: out.State, StopReason: out.StopReason, Worker: out.Worker}
	if out.Error != nil {
		end.Error = out.Error.Message
	}
	w.a.info("raiderfleet/turn", object(end))
}

func (a *attachment) hasAnswered(p subjects.PromptID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.answered, p)
}

// showWaiting tells a client that loads a session which of its prompts wait, and where.
func (w *follower) showWaiting(ctx context.Context) {
	w.a.mu.Lock()
	meta := w.a.meta
	w.a.mu.Unlock()
	bound, cancel := w.f.b.Bound(ctx, w.f.b.AckWait()/3)
	defer cancel()
	counts, err := w.f.b.Counts(bound, w.f.fleet.BacklogStream(), w.f.fleet.BacklogLane(meta.Raider, meta.Lane))
	if err != nil {
		return // a place is not worth an error
	}
	of := 0
	for _, n := range counts { // of each principal on a slot
		of += int(n) //nolint:gosec // far below
	}
	if of == 0 {
		return
	}
	front, opens, err := w.f.backlog(bound, meta, 0, toldPlaces+1)
	if err != nil {
		return
	}
	of -= len(opens)
	for i, m := range front {
		// The first one runs, or is about to: its events tell.
		if p := m.header.Prompt; p != w.started && m.header.Session == meta.Session && w.a.turn(p) == nil && (i > 0 || w.f.unstarted(bound, p)) {
			w.a.info("raiderfleet/queue", object(queuePlace{p, i, max(of, i+1)}))
		}
	}
}

// unstarted says whether a prompt has no run record yet.
func (f *FrontDoor) unstarted(ctx context.Context, p subjects.PromptID) bool {
	var rec subjects.RunRecord
	_, err := f.b.GetJSON(ctx, f.fleet.RunsBucket(), subjects.RunKey(p), &rec)
	return errors.Is(err, bus.ErrNotFound)
}
