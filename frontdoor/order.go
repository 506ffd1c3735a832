package frontdoor

import (
	"maps"
	"slices"

	"raiderfleet/subjects"
)

// event is a stored event of a session.
type event struct {
	seq    uint64 // in EVENTS
	header subjects.EventHeader
	data   []byte
}

// order puts a session's events into the order in which their owners wrote them. It is
// given them in the order of the stream, where a publish that was repeated may stand
// late or twice, and what a lost owner sent may stand after its successor's.
//
// The zero value expects the first event of any owner. It is for one goroutine.
type order struct {
	epoch   uint64           // the highest seen
	n       uint64           // of the last event that was passed on under epoch
	pending map[uint64]event // of epoch, beyond a hole after n
	held    []event          // outcomes whose last event has not been passed on
	// unknown: what was passed on before is not known; the first event is the next one.
	unknown bool
}

// add takes the next event of the stream and emits all that can be passed on now.
func (o *order) add(e event, emit func(event)) {
	h := e.header
	if o.unknown && max(h.Epoch, h.LastEpoch) > 0 {
		o.unknown, o.epoch, o.n = false, h.LastEpoch, h.LastN
		if h.Epoch > 0 {
			o.epoch, o.n = h.Epoch, max(h.N, 1)-1
		}
	}
	if h.Kind == subjects.EventOutcome {
		if o.reached(h) {
			emit(e)
			return
		}
		if h.LastEpoch > o.epoch && h.LastN == 0 {
			o.advance(h.LastEpoch, emit)
			emit(e)
			return
		}
		o.held = append(o.held, e)
		return
	}
	if h.Epoch == 0 {
		emit(e) // no owner wrote it
		return
	}
	if h.Epoch > o.epoch {
		o.advance(h.Epoch, emit)
	}
	switch {
	case h.Epoch < o.epoch, h.N <= o.n:
		// Of an owner that was lost, or a second copy.
	case h.N == o.n+1:
		o.pass(e, emit)
	default:
		if o.pending == nil {
			o.pending = map[uint64]event{}
		}
		o.pending[h.N] = e
	}
}

// reached says whether all that comes before an outcome has been passed on.
func (o *order) reached(h subjects.EventHeader) bool {
	return h.LastEpoch < o.epoch || h.LastEpoch == o.epoch && h.LastN <= o.n
}

// pass emits the next event and what it was waited for by.
func (o *order) pass(e event, emit func(event)) {
	for {
		o.n = e.header.N
		emit(e)
		o.release(emit)
		next, ok := o.pending[o.n+1]
		if !ok {
			return
		}
		delete(o.pending, o.n+1)
		e = next
	}
}

// release emits the held outcomes that are due.
func (o *order) release(emit func(event)) {
	if len(o.held) == 0 {
		return
	}
	held := o.held
	o.held = nil
	for _, e := range held {
		if o.reached(e.header) {
			emit(e)
		} else {
			o.held = append(o.held, e)
		}
	}
}

// advance goes over to a higher epoch: nothing is missing from the older one any more
// that could still come.
func (o *order) advance(epoch uint64, emit func(event)) {
	if epoch <= o.epoch {
		return
	}
	o.skip(emit)
	o.epoch, o.n = epoch, 0
	o.release(emit)
}

// skip passes over all holes: what is missing is not in the stream any more.
func (o *order) skip(emit func(event)) { o.skipTo(^uint64(0), emit) }

func (o *order) skipTo(last uint64, emit func(event)) {
	for _, n := range slices.Sorted(maps.Keys(o.pending)) {
		if e, ok := o.pending[n]; ok && n <= last {
			delete(o.pending, n)
			o.pass(e, emit)
		}
	}
}

// settle emits the held outcomes although what they wait for is not in the stream: all
// of a run's events are stored before its outcome, so it has gone with age.
func (o *order) settle(emit func(event)) {
	for len(o.held) > 0 {
		h := o.held[0].header
		o.take(h.LastEpoch, h.LastN, emit)
	}
}

// adopt goes on from the first event there is of an epoch of which nothing has been passed
// on: what was before it has gone with age.
func (o *order) adopt(emit func(event)) {
	if o.n == 0 && len(o.pending) > 0 {
		first := slices.Min(slices.Collect(maps.Keys(o.pending)))
		e := o.pending[first]
		delete(o.pending, first)
		o.pass(e, emit)
	}
}

// take passes on what there is up to (epoch, n) and goes on from there.
func (o *order) take(epoch, n uint64, emit func(event)) {
	o.unknown = false
	o.advance(epoch, emit)
	if epoch == o.epoch {
		o.skipTo(n, emit)
		o.n = max(o.n, n)
	}
	o.release(emit)
	if next, ok := o.pending[o.n+1]; ok {
		delete(o.pending, o.n+1)
		o.pass(next, emit)
	}
}

// base starts after (epoch, n).
func (o *order) base(epoch, n uint64) { *o = order{epoch: epoch, n: n} }

// waiting says whether something is held back.
func (o *order) waiting() bool { return len(o.held) > 0 || len(o.pending) > 0 }
