package worker

import (
	"context"
	"time"

	"raiderfleet/subjects"
)

// owned returns the lane in the table, nil when there is none.
func (w *Worker) owned(id subjects.LaneID) *lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lanes[id]
}

// enter puts l into the table unless its lane is there already.
func (w *Worker) enter(l *lane) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.lanes[l.id]; ok {
		return false
	}
	w.lanes[l.id] = l
	return true
}

// leave takes l out of the table, if it is still the one that is there.
func (w *Worker) leave(l *lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes[l.id] == l {
		delete(w.lanes, l.id)
	}
}

// snapshot returns the lanes in the table.
func (w *Worker) snapshot() []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*lane, 0, len(w.lanes))
	for _, l := range w.lanes {
		out = append(out, l)
	}
	return out
}

// evictionLook is how often a lane that was asked to leave is looked at: it may have begun
// a run instead.
const evictionLook = 50 * time.Millisecond

// evictIdle asks the longest idle warm lane to go and waits until it has; false when
// there is none.
func (w *Worker) evictIdle(ctx context.Context) bool {
	var oldest *lane
	for first := false; !first; {
		var leaving *lane
		var since time.Time
		oldest = nil
		for _, l := range w.snapshot() {
			switch idle, at, evicted := l.idleSince(); {
			case evicted:
				leaving = l
			case idle && (oldest == nil || at.Before(since)):
				oldest, since = l, at
			}
		}
		switch {
		case oldest != nil:
			// Each who needs room sends another one away, else they would all wait for one.
			first = oldest.evict()
		case leaving != nil:
			oldest, first = leaving, true
		default:
			return false
		}
	}
	tick := time.NewTicker(evictionLook)
	defer tick.Stop()
	for {
		select {
		case <-oldest.done:
			return true
		case <-tick.C:
			if _, _, leaving := oldest.idleSince(); !leaving {
				return true // it has begun a run: another one has to go
			}
		case <-ctx.Done():
			return false
		}
	}
}
