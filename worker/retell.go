package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// retell makes the story of a run whose worker was lost, from the events that it left: no
// other process has gathered it, and EVENTS forgets. upTo is the sequence of the outcome.
// Nil: the transcript has it, or nothing ran.
func (r *run) retell(upTo uint64) (*story, error) {
	l := r.l
	var last subjects.TranscriptEntry
	err := l.do(func(ctx context.Context) error {
		m, err := l.w.b.Last(ctx, l.w.fleet.TranscriptStream(), l.w.fleet.Transcript(r.header.Session))
		if errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.Header.Get(subjects.HeaderPrompt) == string(r.header.Prompt) {
			last.Prompt = r.header.Prompt
			return nil
		}
		body, err := l.w.b.Body(l.ctx, m.Header.Get(subjects.HeaderPayload), m.Data) //nolint:contextcheck // longer than one request
		if err == nil {
			_ = json.Unmarshal(body, &last) // of one that can't be read nothing is known
		}
		return nil
	})
	if err != nil || last.Prompt == r.header.Prompt {
		return nil, err
	}
	events, err := r.left(last.Last+1, upTo)
	if err != nil {
		return nil, err
	}
	var s *story
	for _, e := range events {
		body, err := r.leftBody(e)
		if err != nil {
			return nil, err
		}
		switch {
		case body == nil: // a part that is gone keeps nothing else from being told
		case e.kind == subjects.EventUser:
			var m subjects.UserMessage
			if json.Unmarshal(body, &m) == nil {
				s = newStory(r.header, m.Prompt)
				s.first(e.seq)
			}
		case s != nil && e.kind == subjects.EventUpdate:
			for u := range subjects.Updates(body) {
				s.tell(l, u)
			}
		}
		if s != nil {
			s.reached(e.seq)
		}
	}
	return s, nil
}

// leftEvent is where an event of a lost run is; a long run has very many.
type leftEvent struct {
	epoch, n, seq uint64
	kind          subjects.EventKind
}

// left finds the events of the run in EVENTS, in the owners' order and each once.
func (r *run) left(from, upTo uint64) ([]leftEvent, error) {
	var all []leftEvent
	for {
		m, err := r.nextLeft(from)
		if errors.Is(err, bus.ErrNotFound) || err == nil && m.Seq >= upTo {
			break
		}
		if err != nil {
			return nil, err
		}
		from = m.Seq + 1
		h, err := subjects.ParseEventHeader(m.Header)
		if err != nil || h.Prompt != r.header.Prompt || h.Epoch == 0 {
			continue
		}
		kind := subjects.EventUpdate
		switch h.Kind {
		case subjects.EventUpdate:
		case subjects.EventUser:
			kind = subjects.EventUser
		default:
			kind = "" // nothing is told of it
		}
		all = append(all, leftEvent{epoch: h.Epoch, n: h.N, seq: m.Seq, kind: kind})
	}
	slices.SortStableFunc(all, func(a, b leftEvent) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.n, b.n))
	})
	return slices.CompactFunc(all, func(a, b leftEvent) bool { return a.epoch == b.epoch && a.n == b.n }), nil
}

// nextLeft reads the session's next event.
func (r *run) nextLeft(from uint64) (m bus.Message, err error) {
	l := r.l
	err = l.do(func(ctx context.Context) error {
		m, err = l.w.b.Next(ctx, l.w.fleet.EventsStream(), l.w.fleet.Event(r.header.Session), from)
		return err
	})
	return m, err
}

// leftBody reads an event's body, nil when it is gone. The error is the lane's end, or NATS'.
func (r *run) leftBody(e leftEvent) ([]byte, error) {
	if e.kind == "" {
		return nil, nil
	}
	m, err := r.nextLeft(e.seq)
	if errors.Is(err, bus.ErrNotFound) || err == nil && m.Seq != e.seq {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := r.l.w.b.Body(r.l.ctx, m.Header.Get(subjects.HeaderPayload), m.Data)
	if err != nil && r.l.ctx.Err() == nil {
		return nil, nil
	}
	return body, err
}
