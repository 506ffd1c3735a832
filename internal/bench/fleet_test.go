package bench

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/frontdoor"
	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

// fleet is a NATS server with JetStream on disk, a worker and a front door in this
// process, each on a TCP connection of its own.
type fleet struct {
	url  string
	addr string
	bus  *bus.Bus
}

func startFleet(b *testing.B, capacity, maxWarm int) *fleet {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	f := &fleet{url: natstest.Server(b).ClientURL()}
	f.bus = f.connect(b)
	if err := f.bus.Declare(b.Context()); err != nil {
		b.Fatal(err)
	}
	w, err := worker.New(f.connect(b), worker.Config{
		Name: "w1", StateDir: b.TempDir(), Exe: []string{exe, "shim"}, Capacity: capacity, MaxWarm: maxWarm, DrainTimeout: time.Second,
		Raiders: []worker.Raider{{Name: "demo", Command: []string{exe, "demo", "--state", b.TempDir()}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	fd, err := frontdoor.New(f.connect(b), frontdoor.Config{
		Name: "fd", MaxBacklog: 1000, OnDisconnect: "keep", Raiders: []frontdoor.Raider{{Name: "demo"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	f.addr = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var running sync.WaitGroup
	report := func(err error) {
		if err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	}
	running.Go(func() { report(w.Run(ctx)) })
	running.Go(func() { report(fd.Run(ctx)) })
	running.Go(func() { report(fd.ServeTCP(ctx, listener)) })
	b.Cleanup(func() { cancel(); running.Wait() })
	select {
	case <-w.Ready():
	case <-time.After(time.Minute):
		b.Fatal("the worker did not start")
	}
	return f
}

func (f *fleet) connect(b *testing.B) *bus.Bus {
	b.Helper()
	layout := natstest.Layout(1)
	layout.Memory = false
	c, err := bus.Connect(b.Context(), bus.Options{URLs: []string{f.url}, Name: b.Name(), Layout: layout, AckWait: 30 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}

// agent is a client of the front door that has initialized. It ends with the benchmark.
func (f *fleet) agent(b *testing.B) *agent {
	b.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		b.Fatal(err)
	}
	a := &agent{tb: b, end: func() {}}
	a.conn = rpc.NewConn(conn, conn, a, rpc.Options{})
	a.running.Go(func() { _ = a.conn.Run(context.Background()) })
	b.Cleanup(a.close)
	a.call("initialize", `{"protocolVersion":1}`)
	return a
}

// requester is the yardstick: a core request that another connection answers.
func (f *fleet) requester(b *testing.B) func() {
	b.Helper()
	answering, asking := f.connect(b).Conn(), f.connect(b).Conn()
	sub, err := answering.Subscribe(echoSubject, func(m *nats.Msg) { _ = m.Respond(m.Data) }) // a lost one fails the request
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := answering.Flush(); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 200)
	return func() {
		if _, err := asking.Request(echoSubject, body, 10*time.Second); err != nil {
			b.Fatal(err)
		}
	}
}

// publisher is a synchronous publish to the stream of events.
func (f *fleet) publisher(b *testing.B) func() {
	b.Helper()
	c := f.connect(b)
	subject := c.Fleet().Event(subjects.SessionID("bench"))
	body := make([]byte, 200)
	return func() {
		if _, err := c.JetStream().Publish(b.Context(), subject, body); err != nil {
			b.Fatal(err)
		}
	}
}
