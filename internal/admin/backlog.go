package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// stored is a prompt in BACKLOG.
type stored struct {
	raider subjects.Raider
	lane   subjects.LaneID
	header subjects.PromptHeader
	seq    uint64
	time   time.Time
}

// backlog reads the headers of all prompts that wait or run, in the order of acceptance.
func (f *Fleet) backlog(ctx context.Context) ([]stored, error) {
	// Headers only: the bodies may be large and nobody looks at them.
	var out []stored
	err := f.scan(ctx, f.b.Fleet().BacklogStream(), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: true,
	}, func() { out = nil }, func(m jetstream.Msg, _ uint64, _ time.Time) error {
		// One of another version: nothing that we could say of it. What only opens a raider is
		// no prompt of anybody's.
		if s, err := f.parse(m); err == nil && s.header.Kind == subjects.KindPrompt {
			out = append(out, s)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the backlog: %w", err)
	}
	return out, nil
}

func (f *Fleet) parse(m jetstream.Msg) (stored, error) {
	raider, lane, _, err := f.b.Fleet().ParseBacklog(m.Subject())
	if err != nil {
		return stored{}, err
	}
	header, err := subjects.ParsePromptHeader(m.Headers())
	if err != nil {
		return stored{}, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return stored{}, err
	}
	return stored{raider, lane, header, meta.Sequence.Stream, meta.Timestamp}, nil
}

// record reads a prompt's run record; ok is false when there is none.
func (f *Fleet) record(ctx context.Context, p subjects.PromptID) (r subjects.RunRecord, ok bool, err error) {
	_, err = f.b.GetJSON(ctx, f.b.Fleet().RunsBucket(), subjects.RunKey(p), &r)
	if errors.Is(err, bus.ErrNotFound) {
		return subjects.RunRecord{}, false, nil
	}
	return r, err == nil, err
}
