package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// sendHome offers a baton that is about to be claimed to the worker that has the agent's
// state of the session: an agent that keeps its conversations in files can load them there
// only. True when that worker has taken it. Everything else, an error too, means that the
// lane is served here: the conversation goes on without the agent's memory rather than not
// at all.
func (w *Worker) sendHome(ctx context.Context, bt baton, home string) bool {
	if home == "" || home == w.c.Name {
		return false
	}
	ctx, cancel := w.b.Bound(ctx, min(offerTimeout, w.b.AckWait()/2))
	defer cancel()
	records, err := w.b.List(ctx, w.fleet.NodesBucket(), ">")
	if err != nil {
		return false
	}
	for _, r := range records {
		var n subjects.Node
		if json.Unmarshal(r.Value, &n) != nil || n.Role != subjects.RoleWorker || n.Name != home ||
			n.State != subjects.NodeUp || !slices.Contains(n.Raiders, bt.raider.Name) {
			continue
		}
		body, err := json.Marshal(subjects.WorkerRequest{
			Op: subjects.WorkerHome, Raider: bt.raider.Name, Class: bt.class, Lane: bt.lane, BatonReply: bt.reply, BatonSeq: bt.seq,
		})
		if err != nil {
			return false
		}
		m, err := w.b.Conn().RequestWithContext(ctx, w.fleet.Worker(n.Instance), body)
		if err != nil {
			// It may have it and not say so: then it holds the claim, and taking the lane
			// here begins with an offer to it.
			continue
		}
		var reply subjects.WorkerReply
		if json.Unmarshal(m.Data, &reply) == nil && reply.Offer == subjects.OfferMine {
			return true
		}
	}
	return false
}

// lookHome begins to look for the lane's home; empty: there is none, or nobody can tell.
func (w *Worker) lookHome(ctx context.Context, bt baton) <-chan string {
	found := make(chan string, 1)
	w.all.Go(func() {
		ctx, cancel := w.b.Bound(ctx, min(offerTimeout, w.b.AckWait()/2))
		defer cancel()
		home, err := w.homeOf(ctx, bt)
		if err != nil {
			home = ""
		}
		found <- home
	})
	return found
}

// homeOf is the name of the worker that has the agent's state of the lane's session; on a
// slot, of the session whose prompt comes next. Empty: none has.
func (w *Worker) homeOf(ctx context.Context, bt baton) (string, error) {
	var key string
	if id, ok := bt.lane.Session(); ok {
		key = subjects.AgentFilter(id)
	} else {
		m, err := w.b.Next(ctx, w.fleet.BacklogStream(), w.fleet.BacklogLane(bt.raider.Name, bt.lane), 0)
		if err != nil {
			return "", err
		}
		h, err := subjects.ParsePromptHeader(m.Header)
		if err != nil {
			return "", err
		}
		key = subjects.AgentKey(h.Principal, h.Session)
	}
	var agent subjects.SessionAgent
	_, err := w.b.GetJSON(ctx, w.fleet.SessionsBucket(), key, &agent)
	if errors.Is(err, bus.ErrNotFound) {
		return "", nil
	}
	return agent.Home, err
}

// answerHome takes a baton whose session's agent has its state here, if there is room.
func (w *Worker) answerHome(req subjects.WorkerRequest) subjects.OfferAnswer {
	r := w.raiders[req.Raider]
	if r == nil || w.draining() || !w.places.free(r) {
		return subjects.OfferFull
	}
	select {
	case w.given <- baton{raider: r, class: req.Class, lane: req.Lane, seq: req.BatonSeq, reply: req.BatonReply}:
		return subjects.OfferMine
	default:
		return subjects.OfferFull
	}
}
