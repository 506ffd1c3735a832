package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/subjects"
)

// DeclareConsumer creates a durable consumer, or brings an older one to this version's
// declaration. One of a newer version is left as it is. Several processes may declare at
// once, and declaring again what is right changes nothing.
func (b *Bus) DeclareConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) error {
	bound, cancel := b.Bound(ctx, max(declareTimeout, b.ackWait/2))
	defer cancel()
	if err := cause(bound, b.declareConsumer(bound, stream, want)); err != nil {
		return fmt.Errorf("declare consumer %s: %w", want.Name, err)
	}
	return nil
}

func (b *Bus) declareConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) error {
	have, err := b.js.Consumer(ctx, stream, want.Name)
	if err == nil {
		config := have.CachedInfo().Config
		version, _ := strconv.Atoi(config.Metadata[subjects.ConfigVersionKey])
		if version > subjects.ConfigVersion {
			b.log.Warn("consumer has a newer declaration, left as it is", "consumer", want.Name, "version", version)
			return nil
		}
		if !consumerDiffers(config, want) {
			return nil
		}
	} else if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	_, err = b.js.CreateOrUpdateConsumer(ctx, stream, want)
	return err
}

// consumerDiffers compares what a declaration sets.
func consumerDiffers(have, want jetstream.ConsumerConfig) bool {
	return have.Metadata[subjects.ConfigVersionKey] != want.Metadata[subjects.ConfigVersionKey] ||
		have.FilterSubject != want.FilterSubject || have.AckPolicy != want.AckPolicy || have.AckWait != want.AckWait ||
		have.MaxDeliver != want.MaxDeliver || have.MaxAckPending != want.MaxAckPending ||
		have.MaxWaiting != want.MaxWaiting || have.Replicas != want.Replicas
}
