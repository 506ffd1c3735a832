package proof

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/subjects"
)

// Promise 7: what takes NATS away for less than half an ack_wait costs no run.

//nolint:paralleltest // its processes must keep their leases
func TestRestartCostsNoRun(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"restart": syscall.SIGTERM, "crash": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, size{replicas: 1, workers: 1, doors: 1}, 1, 20*time.Second)
			f.costsNoRun(t, func() { f.restart(t, f.servers[0], sig) })
		})
	}
}

// The default ack_wait: a node that goes takes its leaders with it, and their election
// takes seconds.
//
//nolint:paralleltest // as above
func TestRollingRestartCostsNoRun(t *testing.T) {
	f := newFleet(t, size{replicas: 3, workers: 1, doors: 1}, 1, 30*time.Second)
	f.costsNoRun(t, func() {
		for _, s := range f.servers {
			f.restart(t, s, syscall.SIGTERM)
			f.healthy(t)
		}
	})
}

// restart restarts a server, and fails the test if NATS was away for too long for it.
func (f *fleet) restart(t *testing.T, s *process, sig syscall.Signal) {
	t.Helper()
	begin := time.Now()
	s.stop(sig, 10*time.Second)
	s.start(f.tb)
	f.settle(t.Context())
	if d := time.Since(begin); d >= f.ackWait/2 {
		t.Fatalf("NATS was away for %v, which proves nothing", d)
	}
}

// healthy waits until every replica of every stream has caught up, as who restarts one
// node after the other does.
func (f *fleet) healthy(t *testing.T) {
	t.Helper()
	until(t, time.Minute, "all replicas are current", func(ctx context.Context) error {
		var behind error
		note := func(err error) { behind = cmp.Or(behind, err) }
		// Read to their ends: whoever lists waits for a reader.
		streams := f.bus.JetStream().ListStreams(ctx)
		for s := range streams.Info() {
			note(current(s.Config.Name, s.Cluster, f.replicas))
		}
		note(streams.Err())
		ready, err := f.bus.JetStream().Stream(ctx, f.bus.Fleet().ReadyStream())
		if err != nil {
			return err
		}
		consumers := ready.ListConsumers(ctx)
		for c := range consumers.Info() {
			note(current(c.Name, c.Cluster, f.replicas))
		}
		note(consumers.Err())
		return behind
	})
}

func current(name string, c *jetstream.ClusterInfo, replicas int) error {
	if c == nil || c.Leader == "" || len(c.Replicas) != replicas-1 {
		return fmt.Errorf("%s: no leader or not all replicas: %+v", name, c)
	}
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return fmt.Errorf("%s: replica %s is behind", name, r.Name)
		}
	}
	return nil
}

// costsNoRun does something to NATS while a run is live, which must end as if nothing
// had been.
func (f *fleet) costsNoRun(t *testing.T, do func()) {
	t.Helper()
	v := f.newVisitor(0, "bjorn")
	until(t, time.Minute, "a front door serves", func(ctx context.Context) error {
		if !v.connected(ctx, f.rng(laneOfVisitor, 0, 0)) {
			return errors.New("not connected")
		}
		return nil
	})
	s := v.visits[0]
	p := &prompt{tag: "v0.0", session: s.id, lane: s.lane, attempts: 1}
	if _, err := v.w.prompt(p, fmt.Sprintf("%s %s hold", p.lane, p.tag)); err != nil {
		t.Fatal(err)
	}
	until(t, time.Minute, "the run began", func(context.Context) error {
		_, err := os.Stat(f.journal)
		return err
	})
	do()
	if err := os.WriteFile(f.journal+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience(f.ackWait))
	defer cancel()
	v.finish(ctx)
	f.drained(t)
	f.readRecords(t)
	f.loadAll(t, []*visitor{v})
	v.leave()
	f.drain(t)
	f.readEvents(t)
	f.readJournal(t)
	f.readLogs(t)
	for _, bad := range judge(f.h) {
		t.Error(bad)
	}
	if rec := f.h.records[p.id()]; rec.State != subjects.RunCompleted || p.answer == nil || p.answer.state != subjects.RunCompleted {
		t.Errorf("the run ended %q, its client was told %+v", rec.State, p.answer)
	}
}
