package bus_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func consumerConfig(t *testing.T, b *bus.Bus, name string) jetstream.ConsumerConfig {
	t.Helper()
	c, err := b.JetStream().Consumer(t.Context(), b.Fleet().ReadyStream(), name)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().Config
}

func TestDeclareConsumer(t *testing.T) {
	t.Parallel()
	s, b := natstest.Bus(t)
	stream, version := b.Fleet().ReadyStream(), strconv.Itoa(subjects.ConfigVersion)
	want := b.Layout().ReadyConsumer("bjorn", subjects.AnyClass, 7*time.Second)
	declare := func() {
		t.Helper()
		if err := b.DeclareConsumer(t.Context(), stream, want); err != nil {
			t.Fatal(err)
		}
	}
	var at sync.WaitGroup
	for range 4 { // at once
		at.Go(func() {
			if err := b.DeclareConsumer(t.Context(), stream, want); err != nil {
				t.Error(err)
			}
		})
	}
	at.Wait()
	got := consumerConfig(t, b, want.Name)
	if got.Metadata[subjects.ConfigVersionKey] != version || got.AckWait != 7*time.Second || got.MaxAckPending != subjects.MaxAckPending || got.MaxDeliver != -1 {
		t.Errorf("declared as %+v", got)
	}

	spy := natstest.Connect(t, s.ClientURL(), 1)
	writes := captured(t, spy, "$JS.API.CONSUMER.CREATE.>")
	declare()
	if n := writes(); len(n) != 0 {
		t.Errorf("declaring again wrote %v", n)
	}

	change := func(version string, wait time.Duration) {
		t.Helper()
		c := want
		c.Metadata, c.AckWait = map[string]string{subjects.ConfigVersionKey: version}, wait
		if _, err := b.JetStream().CreateOrUpdateConsumer(t.Context(), stream, c); err != nil {
			t.Fatal(err)
		}
	}
	// Never downgraded.
	newer := strconv.Itoa(subjects.ConfigVersion + 1)
	change(newer, time.Second)
	declare()
	if got := consumerConfig(t, b, want.Name); got.AckWait != time.Second || got.Metadata[subjects.ConfigVersionKey] != newer {
		t.Errorf("a newer declaration was changed to %+v", got)
	}
	// Older ones, and another ack_wait of the same version, are brought to ours.
	for _, older := range []string{"0", "", version} {
		change(older, time.Second)
		declare()
		if got := consumerConfig(t, b, want.Name); got.AckWait != 7*time.Second || got.Metadata[subjects.ConfigVersionKey] != version {
			t.Errorf("of version %q: left as %+v", older, got)
		}
	}
	if err := b.JetStream().DeleteConsumer(t.Context(), stream, want.Name); err != nil {
		t.Fatal(err)
	}
	declare()
	consumerConfig(t, b, want.Name)
}
