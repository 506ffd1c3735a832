package natstest

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"raiderfleet/internal/bus"
)

// serviceTimeout is a service's time to answer; only a failure takes it.
const serviceTimeout = 10 * time.Second

// WantService fails unless one NATS micro service of that name, version and metadata
// answers PING, INFO and STATS, as `nats micro` asks for them. It blocks until it does.
func WantService(tb testing.TB, b *bus.Bus, name, version string, metadata map[string]string) {
	tb.Helper()
	for verb, kind := range map[micro.Verb]string{
		micro.PingVerb: micro.PingResponseType, micro.InfoVerb: micro.InfoResponseType, micro.StatsVerb: micro.StatsResponseType,
	} {
		subject, err := micro.ControlSubject(verb, name, "")
		if err != nil {
			tb.Fatal(err)
		}
		var m *nats.Msg
		// Its subscriptions are another connection's: the server may not know of them yet.
		Eventually(tb, serviceTimeout, subject+" is answered", func() (bool, any) {
			m, err = b.Conn().Request(subject, nil, serviceTimeout)
			if err != nil && !errors.Is(err, nats.ErrNoResponders) {
				tb.Fatalf("%s: %v", subject, err)
			}
			return err == nil, err
		})
		var got struct {
			micro.ServiceIdentity

			Type string `json:"type"`
		}
		if err := json.Unmarshal(m.Data, &got); err != nil {
			tb.Fatalf("%s: %v", subject, err)
		}
		if got.Type != kind || got.Name != name || got.Version != version || got.ID == "" || !maps.Equal(got.Metadata, metadata) {
			tb.Errorf("%s: %s; want version %s with %v", subject, m.Data, version, metadata)
		}
	}
}

// WantNoService fails when a service of that name goes on answering. It blocks until none
// does: a stopped one drains its subscriptions.
func WantNoService(tb testing.TB, b *bus.Bus, name string) {
	tb.Helper()
	subject, err := micro.ControlSubject(micro.PingVerb, name, "")
	if err != nil {
		tb.Fatal(err)
	}
	for deadline := time.Now().Add(serviceTimeout); ; {
		_, err := b.Conn().Request(subject, nil, serviceTimeout)
		if errors.Is(err, nats.ErrNoResponders) {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: still answered, %v", subject, err)
		}
	}
}
