package worker

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func (f *fleet) deleteConsumer(r subjects.Raider) {
	f.t.Helper()
	name := f.b.Layout().ReadyConsumer(r, subjects.AnyClass, 0).Name
	if err := f.b.JetStream().DeleteConsumer(f.t.Context(), f.f.ReadyStream(), name); err != nil {
		f.t.Fatal(err)
	}
}

// A consumer that someone has deleted is declared again by the workers that run.
func TestADeletedConsumerIsDeclaredAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20*time.Second)
	f.run(nil)
	for range 2 {
		f.deleteConsumer(bjorn)
		f.want(f.session(nil).prompt("say hello"), subjects.RunCompleted, "", 30*time.Second)
	}
	name := f.b.Layout().ReadyConsumer(bjorn, subjects.AnyClass, 0).Name
	c, err := f.b.JetStream().Consumer(t.Context(), f.f.ReadyStream(), name)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config; got.MaxAckPending != subjects.MaxAckPending || got.AckWait != f.ackWait {
		t.Fatalf("declared as %+v", got)
	}
}

// A request that the server has lost is sent again; one that waits there is not.
func TestALostRequestIsSentAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(nil)
	if err := w.consumers(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := f.watch("$JS.API.CONSUMER.MSG.NEXT.>", nil)
	ctx, stop := context.WithCancel(t.Context())
	var pulling sync.WaitGroup
	pulling.Go(func() { w.pull(ctx, ctx) })
	defer pulling.Wait()
	defer stop()
	long := func() int {
		n := 0
		for _, x := range asked.all() {
			if strings.Contains(x.body, "idle_heartbeat") {
				n++
			}
		}
		return n
	}
	natstest.Eventually(t, 10*time.Second, "a request waits", func() (bool, any) { return long() == 1, long() })
	natstest.Stays(t, 2*f.ackWait, "it waits and is sent again", func() (bool, any) { return long() == 1, long() })
	// Nobody answers any more, and nobody says so.
	sub, err := f.b.Conn().Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	f.deleteConsumer(bjorn)
	natstest.Eventually(t, 10*time.Second, "requests are sent again", func() (bool, any) { return long() >= 3, long() })
}

// A consumer that turns every request away is asked seldom; a link or a baton makes it new.
func TestARequestThatIsTurnedAwayIsRepeatedSeldom(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"503", "409"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2*time.Second)
			w := f.idleWorker(nil)
			if err := w.consumers(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.deleteConsumer(bjorn)
			var asked atomic.Int64
			sub, err := f.b.Conn().Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(m *nats.Msg) {
				asked.Add(1)
				_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {status}}})
			})
			if err != nil {
				t.Fatal(err)
			}
			f.flush(f.b)
			defer func() { _ = sub.Unsubscribe() }()
			ctx, stop := context.WithCancel(t.Context())
			var pulling sync.WaitGroup
			pulling.Go(func() { w.pull(ctx, ctx) })
			natstest.Eventually(t, 10*time.Second, "it is asked", func() (bool, any) { return asked.Load() >= 4, asked.Load() })
			natstest.Stays(t, time.Second, "asked too often", func() (bool, any) { return asked.Load() < 30, asked.Load() })
			stop()
			pulling.Wait()
			select {
			case <-w.unserved:
			default:
				t.Error("nobody is told to look at the consumer")
			}
		})
	}
}
