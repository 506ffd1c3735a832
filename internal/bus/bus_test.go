package bus_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
)

// soon is far below every timeout that could end a request instead of its link.
const soon = 10 * time.Second

// patient connects with an ack_wait whose timeouts no test waits for.
func patient(t *testing.T, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{url}, Layout: natstest.Layout(1), AckWait: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// done waits for a channel to close.
func done(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("%s: not within %v", what, soon)
	}
}

func isUp(b *bus.Bus) bool {
	select {
	case <-b.Up():
		return true
	default:
		return false
	}
}

func TestLinkOverRestart(t *testing.T) {
	t.Parallel()
	node := natstest.Single(t)
	b := natstest.Connect(t, node.URL(), 1)
	for range 2 {
		link := b.Link()
		if link.Err() != nil || !isUp(b) {
			t.Fatal("no link right after connecting")
		}
		node.Stop()
		done(t, "the link's end", link.Done())
		if cause := context.Cause(link); !errors.Is(cause, bus.ErrDisconnected) {
			t.Errorf("cause %v", cause)
		}
		if isUp(b) || b.Link().Err() == nil {
			t.Error("a link while the server is down")
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := b.WaitUp(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitUp while the server is down: %v", err)
		}
		cancel()
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		long, cancel := context.WithTimeout(t.Context(), soon)
		if err := b.WaitUp(long); err != nil {
			t.Fatalf("WaitUp: %v", err)
		}
		cancel()
		if err := b.Conn().FlushTimeout(soon); err != nil {
			t.Errorf("the new link: %v", err)
		}
	}
}

func TestBoundEndsWithTheLink(t *testing.T) {
	t.Parallel()
	node := natstest.Single(t)
	b := patient(t, node.URL())
	// A responder that never answers, on a connection of its own.
	other := patient(t, node.URL())
	asked := make(chan struct{})
	if _, err := other.Conn().Subscribe("silent", func(*nats.Msg) { close(asked) }); err != nil {
		t.Fatal(err)
	}
	if err := other.Conn().FlushTimeout(soon); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := b.Bound(t.Context(), 0)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := b.Conn().RequestWithContext(ctx, "silent", nil)
		result <- err
	}()
	done(t, "the request's arrival", asked)
	node.Stop()
	done(t, "the bound's end", ctx.Done())
	if err := <-result; err == nil {
		t.Error("the request was answered")
	}
	if cause := context.Cause(ctx); !errors.Is(cause, bus.ErrDisconnected) {
		t.Errorf("cause %v", cause)
	}
	// Made while there is no link, it has ended already.
	late, cancel := b.Bound(t.Context(), 0)
	defer cancel()
	done(t, "the end of a bound without a link", late.Done())
}

func TestBoundEndsWithItsContextAndTime(t *testing.T) {
	t.Parallel()
	b := patient(t, natstest.Server(t).ClientURL())
	parent, end := context.WithCancel(t.Context())
	ctx, cancel := b.Bound(parent, 0)
	defer cancel()
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > b.AckWait()/6 || time.Until(at) < b.AckWait()/7 {
		t.Errorf("deadline in %v, want ack_wait/6", time.Until(at))
	}
	end()
	done(t, "the end with its parent", ctx.Done())
	brief, cancel := b.Bound(t.Context(), time.Millisecond)
	defer cancel()
	done(t, "the end with its time", brief.Done())
	if !errors.Is(brief.Err(), context.DeadlineExceeded) {
		t.Errorf("ended by %v", brief.Err())
	}
}

// The calls of Bus end with the link by themselves, and the error does not look like
// the end of the caller's context.
func TestCallsEndWithTheLink(t *testing.T) {
	t.Parallel()
	node := natstest.Single(t)
	b := patient(t, node.URL())
	if err := b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	stream, bucket := b.Fleet().OwnStream(), b.Fleet().RunsBucket()
	link := b.Link()
	node.Stop()
	done(t, "the link's end", link.Done())
	calls := map[string]func() error{
		"Last": func() error { _, err := b.Last(t.Context(), stream, "x"); return err },
		"Publish": func() error {
			_, err := b.Publish(t.Context(), &nats.Msg{Subject: b.Fleet().Own("r", "slot-1r")})
			return err
		},
		"PutJSON": func() error { _, err := b.PutJSON(t.Context(), bucket, "k", 1, 0, 0); return err },
		"Counts":  func() error { _, err := b.Counts(t.Context(), stream, ">"); return err },
		"LastSeq": func() error { _, err := b.LastSeq(t.Context(), stream); return err },
		"Delete":  func() error { return b.DeleteMessage(t.Context(), stream, 1) },
		"Payload": func() error { _, err := b.GetPayload(t.Context(), "p"); return err },
		"Put":     func() error { return b.PutPayload(t.Context(), "p", randomBytes(large)) },
		"Declare": func() error { return b.Declare(t.Context()) },
	}
	for name, call := range calls {
		begin := time.Now()
		err := call()
		if err == nil || errors.Is(err, context.Canceled) || !bus.Unclear(err) {
			t.Errorf("%s without a link: %v", name, err)
		}
		if took := time.Since(begin); took > soon {
			t.Errorf("%s took %v", name, took)
		}
	}
}

func TestCloseWaits(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{s.ClientURL()}, Layout: natstest.Layout(1)})
	if err != nil {
		t.Fatal(err)
	}
	link := b.Link()
	var callers sync.WaitGroup
	for range 3 { // safe many times and at once
		callers.Go(b.Close)
	}
	callers.Wait()
	if link.Err() == nil || isUp(b) || !b.Conn().IsClosed() {
		t.Errorf("after Close: link %v, up %v", link.Err(), isUp(b))
	}
}

func TestConnectInProcess(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	b, err := bus.Connect(t.Context(), bus.Options{InProcess: s, Name: "here", Layout: natstest.Layout(1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.AckWait() != 30*time.Second {
		t.Errorf("AckWait = %v by default", b.AckWait())
	}
}

func TestConnectErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	s, err := bus.StartServer(bus.ServerOptions{Port: -1, StoreDir: t.TempDir(), User: "bob", Password: "right"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	host := strings.TrimPrefix(s.ClientURL(), "nats://")
	for name, o := range map[string]bus.Options{
		"nobody there":    {URLs: []string{"nats://bob:s3cret@127.0.0.1:1"}},
		"several":         {URLs: []string{"nats://bob:s3cret@127.0.0.1:1,nats://bob:s3cret@127.0.0.1:2", "bob:s3cret@127.0.0.1:3"}},
		"a bad port":      {URLs: []string{"nats://bob:s3cret@127.0.0.1:port"}},
		"a bad escape":    {URLs: []string{"nats://bob:s3cret%zz@127.0.0.1:1"}},
		"a bad character": {URLs: []string{"nats://bob:s3cret\x7f@127.0.0.1:1"}},
		"refused":         {URLs: []string{"nats://bob:s3cret@" + host}},
		"refused, apart":  {URLs: []string{s.ClientURL()}, User: "bob", Password: "s3cret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Layout = natstest.Layout(1)
			b, err := bus.Connect(t.Context(), o)
			if err == nil {
				b.Close()
				t.Fatal("connected")
			}
			if strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("error text: %v", err)
			}
		})
	}
	b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{s.ClientURL()}, User: "bob", Password: "right", Layout: natstest.Layout(1)})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
}

// A server that hangs is left after half an ack_wait, dialling one ends after a quarter, and
// nothing is sent later than its sender knows.
func TestConnectionOptions(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{s.ClientURL()}, Layout: natstest.Layout(1), AckWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	o := b.Conn().Opts
	if o.PingInterval != 10*time.Second || o.MaxPingsOut != 2 || o.Timeout != 15*time.Second || o.ReconnectBufSize != -1 || o.MaxReconnect != -1 {
		t.Errorf("ping every %v, %d outstanding, dial %v, buffer %d, %d reconnects", o.PingInterval, o.MaxPingsOut, o.Timeout, o.ReconnectBufSize, o.MaxReconnect)
	}
}

// A server that accepts and says nothing must not hold a caller that was told to stop.
func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var accepting sync.WaitGroup
	accepting.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		cancel()
		<-t.Context().Done() // silent, to the end of the test
		_ = c.Close()
	})
	t.Cleanup(func() { _ = l.Close(); accepting.Wait() })
	begin := time.Now()
	b, err := bus.Connect(ctx, bus.Options{URLs: []string{"nats://" + l.Addr().String()}, AckWait: time.Hour})
	if err == nil {
		b.Close()
	}
	if !errors.Is(err, context.Canceled) || time.Since(begin) > soon {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

// A request that a server has taken and will never answer ends with the link too.
func TestCallsUnderWayEndWithTheLink(t *testing.T) {
	t.Parallel()
	// Without JetStream, so that nobody answers but the silent subscriber.
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(soon) {
		t.Fatal("the server does not serve")
	}
	b, other := patient(t, s.ClientURL()), patient(t, s.ClientURL())
	asked := make(chan string, 16)
	for _, subject := range []string{"$JS.API.>", "$KV.>"} {
		if _, err := other.Conn().Subscribe(subject, func(m *nats.Msg) { asked <- m.Subject }); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Conn().FlushTimeout(soon); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"Last":    func() error { _, err := b.Last(t.Context(), "S", "x"); return err },
		"SetJSON": func() error { _, err := b.SetJSON(t.Context(), "B", "k", 1, 0); return err },
		"Counts":  func() error { _, err := b.Counts(t.Context(), "S", ">"); return err },
		"Delete":  func() error { return b.DeleteMessage(t.Context(), "S", 1) },
	}
	type result struct {
		name string
		err  error
	}
	results := make(chan result, len(calls))
	for name, call := range calls {
		go func() { results <- result{name, call()} }()
	}
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for range calls {
		select {
		case <-asked:
		case <-timer.C:
			t.Fatal("not all calls were sent")
		}
	}
	s.Shutdown()
	for range calls {
		select {
		case r := <-results:
			if r.err == nil || errors.Is(r.err, context.Canceled) || !bus.Unclear(r.err) {
				t.Errorf("%s: %v", r.name, r.err)
			}
		case <-timer.C:
			t.Fatal("a call is still waiting")
		}
	}
}

// A server without a leader does not answer; a caller that has all the time in the world
// must get to its next try all the same.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	b := natstest.Connect(t, s.ClientURL(), 1)
	if _, err := b.Conn().Subscribe("$KV.silent.>", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	begin := time.Now()
	_, err := b.SetJSON(ctx, "silent", "k", 1, 0)
	if !errors.Is(err, context.DeadlineExceeded) || !bus.Unclear(err) || time.Since(begin) > soon {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}
