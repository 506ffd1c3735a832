// Package natstest starts NATS servers for tests: one, or a cluster of three in this
// process, on free ports of 127.0.0.1 with JetStream in the test's own directory.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// AckWait is the ack_wait of tests: long enough for two noisy cores.
const AckWait = 2 * time.Second

// Server starts one server and ends it with the test.
func Server(tb testing.TB) *server.Server {
	tb.Helper()
	s, err := bus.StartServer(bus.ServerOptions{Port: -1, StoreDir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// Layout is a layout for tests.
func Layout(replicas int) subjects.Layout {
	return subjects.Layout{Fleet: "test", Replicas: replicas, MaxBacklog: 1000, Memory: replicas == 1}
}

// Connect connects to url (or several, with commas between them) with the fleet of Layout and closes with the test.
func Connect(tb testing.TB, url string, replicas int) *bus.Bus {
	tb.Helper()
	b, err := bus.Connect(tb.Context(), bus.Options{
		URLs: []string{url}, Name: tb.Name(), Layout: Layout(replicas), AckWait: AckWait,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// Bus starts a server, connects and declares the fleet.
func Bus(tb testing.TB) (*server.Server, *bus.Bus) {
	tb.Helper()
	s := Server(tb)
	b := Connect(tb, s.ClientURL(), 1)
	if err := b.Declare(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s, b
}

// Fill makes the server refuse all that is to be stored, as when its disk is full, until
// the function that it returns is called.
func Fill(tb testing.TB, s *server.Server) (empty func()) {
	tb.Helper()
	limit := func(bytes int64) {
		tb.Helper()
		if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
			MaxMemory: bytes, MaxStore: bytes, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
			MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
		}}); err != nil {
			tb.Fatal(err)
		}
	}
	limit(1)
	return func() { tb.Helper(); limit(-1) }
}
