package bus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
)

// Three servers, of which one goes and comes back: nothing that was acknowledged is
// lost, and the codes that callers decide on are those of one server.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := natstest.Cluster(t)
	b := natstest.Connect(t, natstest.URLs(nodes), 3)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	declare := func() {
		natstest.Eventually(t, time.Minute, "the streams are declared", func() (bool, any) {
			err := b.Declare(ctx)
			return err == nil, err
		})
	}
	declare()
	f, bucket := b.Fleet(), b.Fleet().RunsBucket()
	baton := &nats.Msg{Subject: f.Ready("bjorn", "any", "slot-1bjorn")}
	seq, err := b.Publish(ctx, baton)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := b.PutJSON(ctx, bucket, "p1", "before", 0, 0)
	if err != nil {
		t.Fatal(err)
	}

	codes := func() {
		t.Helper()
		if _, err := b.Publish(ctx, baton); !errors.Is(err, bus.ErrFull) {
			t.Errorf("a second baton: %v", err)
		}
		if _, err := b.PutJSON(ctx, bucket, "p1", "x", 0, 0); !errors.Is(err, bus.ErrConflict) {
			t.Errorf("created twice: %v", err)
		}
	}
	codes()

	connected := b.Conn().ConnectedServerName()
	var down *natstest.Node
	for _, n := range nodes {
		if n.Server.Name() == connected {
			down = n
		}
	}
	natstest.WaitHealthy(t, nodes)
	link := b.Link()
	down.Stop() // the one that we are connected to
	done(t, "the link's end", link.Done())
	if err := b.WaitUp(ctx); err != nil {
		t.Fatal(err)
	}
	natstest.WaitLeader(t, nodes)
	natstest.Eventually(t, time.Minute, "the record is read", func() (bool, any) { // a leader of the bucket
		var got string
		at, err := b.GetJSON(ctx, bucket, "p1", &got)
		return err == nil && got == "before" && at == rev, err
	})
	natstest.Eventually(t, time.Minute, "the record is written", func() (bool, any) {
		next, err := b.PutJSON(ctx, bucket, "p1", "after", rev, 0)
		if errors.Is(err, bus.ErrConflict) { // an earlier try went through
			var got string
			next, err = b.GetJSON(ctx, bucket, "p1", &got)
		}
		rev = max(rev, next)
		return err == nil, err
	})
	natstest.Eventually(t, time.Minute, "READY has a leader", func() (bool, any) { // a leader of READY
		_, err := b.Publish(ctx, baton)
		return errors.Is(err, bus.ErrFull), err
	})
	codes()

	if err := down.Start(); err != nil {
		t.Fatal(err)
	}
	natstest.WaitHealthy(t, nodes)
	natstest.Eventually(t, time.Minute, "all replicas are there", func() (bool, any) { // all replicas are there again
		s, err := b.JetStream().Stream(ctx, f.ReadyStream())
		if err != nil {
			return false, err
		}
		current := 0
		for _, r := range s.CachedInfo().Cluster.Replicas {
			if r.Current && !r.Offline {
				current++
			}
		}
		return current == 2, s.CachedInfo().Cluster
	})
	declare()
	codes()
	for range 2 {
		if err := b.DeleteMessage(ctx, f.ReadyStream(), seq); err != nil {
			t.Errorf("DeleteMessage: %v", err)
		}
	}
	if _, err := b.Publish(ctx, baton); err != nil {
		t.Errorf("a baton right after the deletion of the last: %v", err)
	}
}

// On three servers a write may be refused because another of its subject is on its way to
// them. That decides nothing: whoever repeats it is the one that wrote, or finds the other's.
func TestWritesInFlight(t *testing.T) {
	t.Parallel()
	nodes := natstest.Cluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b := natstest.Connect(t, natstest.URLs(nodes), 3), natstest.Connect(t, natstest.URLs(nodes), 3)
	natstest.Eventually(t, time.Minute, "the streams are declared", func() (bool, any) {
		err := a.Declare(ctx)
		return err == nil, err
	})
	bucket := a.Fleet().RunsBucket()
	inFlight := 0
	for i := range 200 {
		key := fmt.Sprintf("p%d", i)
		var writing sync.WaitGroup
		var mu sync.Mutex // guards the rest
		won, lost := 0, 0
		for n, w := range []*bus.Bus{a, b, a, b} {
			writing.Go(func() {
				for {
					_, err := w.PutJSON(ctx, bucket, key, n, 0, 0)
					mu.Lock()
					switch {
					case errors.Is(err, bus.ErrInFlight):
						if !bus.Unclear(err) || errors.Is(err, bus.ErrConflict) {
							t.Errorf("taken for decided: %v", err)
						}
						inFlight++
						mu.Unlock()
						continue
					case err == nil:
						won++
					case errors.Is(err, bus.ErrConflict):
						var have int
						if _, err := w.GetJSON(ctx, bucket, key, &have); err != nil {
							t.Errorf("lost to nobody: %v", err)
						}
						lost++
					default:
						t.Errorf("%s: %v", key, err)
					}
					mu.Unlock()
					return
				}
			})
		}
		writing.Wait()
		if won != 1 || lost != 3 {
			t.Fatalf("%s: %d won, %d lost", key, won, lost)
		}
	}
	t.Logf("%d writes found another in flight", inFlight)
}
