package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

func (w *Worker) node(state subjects.NodeState) subjects.Node {
	n := subjects.Node{
		Role: subjects.RoleWorker, Name: w.c.Name, Instance: w.instance, Host: w.host, PID: os.Getpid(),
		State: state, Started: w.started, Capacity: w.c.Capacity, MaxWarm: w.c.MaxWarm,
		Running: w.places.inUse(), Warm: w.tableSize(),
	}
	for i := range w.c.Raiders {
		n.Raiders = append(n.Raiders, w.c.Raiders[i].Name)
	}
	n.Agents = w.agents.all()
	return n
}

// present writes the worker's presence; it ends by itself after presenceBeats.
func (w *Worker) present(ctx context.Context, state subjects.NodeState) error {
	ctx, cancel := w.b.Bound(ctx, w.b.AckWait()/2)
	defer cancel()
	if _, err := w.b.SetJSON(ctx, w.fleet.NodesBucket(), subjects.NodeKey(w.instance), w.node(state), presenceBeats*w.b.AckWait()); err != nil {
		return fmt.Errorf("announce the worker: %w", err)
	}
	return nil
}

// warnOfTwins says so when another worker has this one's name: a session's home is a name,
// so what its agent keeps in files would be looked for at the wrong one of them.
func (w *Worker) warnOfTwins(ctx context.Context) {
	ctx, cancel := w.b.Bound(ctx, 0)
	defer cancel()
	records, err := w.b.List(ctx, w.fleet.NodesBucket(), ">")
	if err != nil {
		return // nothing hangs on it
	}
	for _, r := range records {
		var n subjects.Node
		if json.Unmarshal(r.Value, &n) != nil || n.Role != subjects.RoleWorker || n.Name != w.c.Name ||
			n.Instance == w.instance || n.State == subjects.NodeGoodbye {
			continue
		}
		w.log.Warn("another worker has this name: give each its own (worker.name), or sessions lose what their agents remember",
			"name", n.Name, "host", n.Host, "pid", n.PID, "instance", string(n.Instance))
	}
}

func (w *Worker) keepPresence(ctx context.Context) {
	tick := time.NewTicker(w.b.AckWait())
	defer tick.Stop()
	state := subjects.NodeUp
	drain := w.drain
	for {
		select {
		case <-tick.C:
		case <-w.learnt:
		case <-drain:
			state, drain = subjects.NodeDraining, nil
		case <-ctx.Done():
			return
		}
		if err := w.present(ctx, state); err != nil && ctx.Err() == nil {
			w.log.Warn("presence not renewed", "error", err)
		}
	}
}

// goodbye says that nothing of an instance runs any more: its lanes are claimed without
// an offer and without a wait.
func (w *Worker) goodbye(ctx context.Context, i subjects.Instance) error {
	n := w.node(subjects.NodeGoodbye)
	n.Instance = i
	_, err := w.b.SetJSON(ctx, w.fleet.NodesBucket(), subjects.NodeKey(i), n, subjects.GoodbyeTTL)
	return err
}

func (w *Worker) saidGoodbye(ctx context.Context, i subjects.Instance) bool {
	ctx, cancel := w.b.Bound(ctx, 0)
	defer cancel()
	var n subjects.Node
	_, err := w.b.GetJSON(ctx, w.fleet.NodesBucket(), subjects.NodeKey(i), &n)
	return err == nil && n.State == subjects.NodeGoodbye
}

// publishFleetEvent publishes e; nothing depends on its arrival.
func publishFleetEvent(b *bus.Bus, e subjects.FleetEvent) {
	body, err := json.Marshal(e)
	if err == nil {
		_ = b.Conn().Publish(b.Fleet().FleetEvent(e.Kind), body)
	}
}
