package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/subjects"
)

const declareTimeout = 10 * time.Second

// Declare creates the fleet's streams and buckets, and brings older ones to this
// version's declaration. A stream of a newer version is left as it is. Several
// processes may declare at once.
func (b *Bus) Declare(ctx context.Context) error {
	for _, want := range b.layout.Streams() {
		// Three replicas on a busy cluster take seconds to make a stream.
		bound, cancel := b.Bound(ctx, max(declareTimeout, b.ackWait/2))
		err := cause(bound, b.declare(bound, want))
		cancel()
		if err = classify(err); errors.Is(err, ErrNoSpace) && want.MaxBytes > 0 {
			err = b.reservation(want.MaxBytes, err)
		}
		if err != nil {
			return fmt.Errorf("declare stream %s: %w", want.Name, err)
		}
	}
	b.declared.Store(true)
	return nil
}

// Declared says whether this connection has declared the fleet. One that has not may not
// have the fleet's layout: it declares nothing again either.
func (b *Bus) Declared() bool { return b.declared.Load() }

// reservation says of a stream's bytes for which the server has no room what is missing.
func (b *Bus) reservation(bytes int64, err error) error {
	left := "NATS has fewer left; its log says at its start how many it may use"
	if s := b.inProcess; s != nil {
		if _, reserved, resErr := s.JetStreamReservedResources(); resErr == nil && s.JetStreamConfig() != nil {
			may := s.JetStreamConfig().MaxStore
			left = fmt.Sprintf("NATS may use %d of the disk, and %d are reserved already: %d are left", may, reserved, max(may-reserved, 0))
		}
	}
	return fmt.Errorf("it reserves %d bytes for as long as it is there, and %s; make room or lower logs.max_events_size: %w", bytes, left, err)
}

func (b *Bus) declare(ctx context.Context, want jetstream.StreamConfig) error {
	have, err := b.js.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		have, err = b.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another process was first, perhaps with an older declaration.
			have, err = b.js.Stream(ctx, want.Name)
		}
		if err != nil {
			return err
		}
	case err != nil:
		return err
	}
	config := have.CachedInfo().Config
	version, _ := strconv.Atoi(config.Metadata[subjects.ConfigVersionKey])
	if version > subjects.ConfigVersion {
		b.log.Warn("stream has a newer declaration, left as it is", "stream", want.Name, "version", version)
		b.remember(want.Name, have)
		return nil
	}
	if differs(config, want) {
		// Storage can't be changed; the server says so by name.
		if have, err = b.js.UpdateStream(ctx, want); err != nil {
			return err
		}
	}
	b.remember(want.Name, have)
	return nil
}

// differs compares what a declaration sets and the server does not fill in by itself.
func differs(have, want jetstream.StreamConfig) bool {
	if want.MaxMsgsPerSubject == 0 {
		want.MaxMsgsPerSubject = -1 // as the server writes 'no limit'
	}
	return have.Metadata[subjects.ConfigVersionKey] != want.Metadata[subjects.ConfigVersionKey] ||
		!slices.Equal(have.Subjects, want.Subjects) ||
		have.Replicas != want.Replicas ||
		have.MaxMsgs != want.MaxMsgs || have.MaxMsgsPerSubject != want.MaxMsgsPerSubject ||
		have.MaxAge != want.MaxAge || have.MaxBytes != want.MaxBytes || have.MaxMsgSize != want.MaxMsgSize ||
		have.Discard != want.Discard || have.DiscardNewPerSubject != want.DiscardNewPerSubject ||
		(want.Duplicates != 0 && have.Duplicates != want.Duplicates) ||
		have.AllowDirect != want.AllowDirect || have.AllowRollup != want.AllowRollup ||
		have.AllowMsgTTL != want.AllowMsgTTL ||
		!reflect.DeepEqual(have.RePublish, want.RePublish)
}

func (b *Bus) remember(name string, s jetstream.Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams[name] = s
}

// stream returns a handle. The first use of one that was not declared by this process
// asks the server.
func (b *Bus) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	b.mu.Lock()
	s, ok := b.streams[name]
	b.mu.Unlock()
	if ok {
		return s, nil
	}
	ctx, cancel := b.request(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, cause(ctx, err))
	}
	b.remember(name, s)
	return s, nil
}

// Counts returns how many messages each subject of the stream has that filter matches.
func (b *Bus) Counts(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	s, err := b.stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.request(ctx)
	defer cancel()
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, cause(ctx, err)
	}
	return info.State.Subjects, nil
}

// LastSeq returns the highest sequence that the stream ever had.
func (b *Bus) LastSeq(ctx context.Context, stream string) (uint64, error) {
	s, err := b.stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	ctx, cancel := b.request(ctx)
	defer cancel()
	info, err := s.Info(ctx)
	if err != nil {
		return 0, cause(ctx, err)
	}
	return info.State.LastSeq, nil
}

// Subjects lists the subjects of a stream that filter matches, without their counts.
func (b *Bus) Subjects(ctx context.Context, stream, filter string) ([]string, error) {
	counts, err := b.Counts(ctx, stream, filter)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(counts))
	for s := range counts {
		out = append(out, s)
	}
	return out, nil
}

// bucketKey cuts a bucket's prefix off a subject.
func bucketKey(bucket, subject string) string {
	return strings.TrimPrefix(subject, "$KV."+bucket+".")
}
