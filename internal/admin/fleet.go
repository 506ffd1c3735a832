package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// workerTimeout bounds how long a worker may take to answer.
const workerTimeout = time.Second

// Fleet looks at the fleet of a connection. Safe for many goroutines.
type Fleet struct {
	b   *bus.Bus
	now func() time.Time
}

// New makes a look at the fleet of b.
func New(b *bus.Bus) *Fleet { return &Fleet{b: b, now: time.Now} }

// Worker is a worker as its presence tells of it.
type Worker struct {
	subjects.Node

	// Seen is when it wrote its presence last, by the server's clock.
	Seen time.Time `json:"seen"`
	// Silent: it does not answer, and its presence is older than it should be.
	Silent bool `json:"silent,omitempty"`
}

// Workers lists the workers that are there, by name and start. A worker that died without
// a word is listed until three ack_wait have passed.
func (f *Fleet) Workers(ctx context.Context) ([]Worker, error) {
	records, err := f.b.List(ctx, f.b.Fleet().NodesBucket(), "")
	if err != nil {
		return nil, fmt.Errorf("list the workers: %w", err)
	}
	out := []Worker{}
	for _, r := range records {
		if _, err := subjects.ParseNodeKey(r.Key); err != nil {
			continue // a lease of the workers, not a node
		}
		var n subjects.Node
		if err := json.Unmarshal(r.Value, &n); err != nil {
			return nil, fmt.Errorf("list the workers: %s: %w", r.Key, err)
		}
		if n.Role == subjects.RoleWorker && n.State != subjects.NodeGoodbye {
			out = append(out, Worker{Node: n, Seen: r.Time})
		}
	}
	slices.SortFunc(out, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Started.Compare(b.Started))
	})
	return out, nil
}

// Lanes asks all workers for the lanes that they own, in parallel, and returns them by
// raider and lane, with the workers that did not answer within a second.
func (f *Fleet) Lanes(ctx context.Context) (lanes []subjects.LaneStatus, silent []subjects.Instance, err error) {
	workers, err := f.Workers(ctx)
	if err != nil {
		return nil, nil, err
	}
	replies, err := f.askAll(ctx, workers)
	if err != nil {
		return nil, nil, err
	}
	lanes = []subjects.LaneStatus{}
	for i, reply := range replies {
		if reply == nil {
			silent = append(silent, workers[i].Instance)
			continue
		}
		lanes = append(lanes, reply.Lanes...)
	}
	slices.SortFunc(lanes, func(a, b subjects.LaneStatus) int {
		return cmp.Or(cmp.Compare(a.Raider, b.Raider), cmp.Compare(a.Lane, b.Lane))
	})
	return lanes, silent, nil
}

// askAll asks the workers for their lanes, in parallel; nil for one that does not answer.
func (f *Fleet) askAll(ctx context.Context, workers []Worker) ([]*subjects.WorkerReply, error) {
	replies := make([]*subjects.WorkerReply, len(workers))
	var asking sync.WaitGroup
	for i, w := range workers {
		asking.Go(func() {
			if reply, err := f.askWorker(ctx, w.Instance); err == nil {
				replies[i] = &reply
			}
		})
	}
	asking.Wait()
	return replies, ctx.Err()
}

func (f *Fleet) askWorker(ctx context.Context, w subjects.Instance) (subjects.WorkerReply, error) {
	body, err := json.Marshal(subjects.WorkerRequest{Op: subjects.WorkerLanes})
	if err != nil {
		return subjects.WorkerReply{}, err
	}
	ctx, cancel := f.b.Bound(ctx, workerTimeout)
	defer cancel()
	m, err := f.b.Conn().RequestWithContext(ctx, f.b.Fleet().Worker(w), body)
	if err != nil {
		return subjects.WorkerReply{}, err
	}
	var reply subjects.WorkerReply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return subjects.WorkerReply{}, err
	}
	if reply.Error != "" {
		return subjects.WorkerReply{}, errors.New(reply.Error)
	}
	return reply, nil
}
