package proof

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
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
	v, p := f.heldRun(t)
	do()
	if err := os.WriteFile(f.journal+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.conclude(t, v)
	if rec := f.h.records[p.id()]; rec.State != subjects.RunCompleted || p.answer == nil || p.answer.state != subjects.RunCompleted {
		t.Errorf("the run ended %q, its client was told %+v", rec.State, p.answer)
	}
}

// heldRun is a run that began and goes on until the journal's .go is there.
func (f *fleet) heldRun(t *testing.T) (*visitor, *prompt) {
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
		// The raider is there before its first prompt.
		text, err := os.ReadFile(f.journal)
		if err == nil && !strings.Contains(string(text), p.tag) {
			err = errors.New("the journal has nothing of it")
		}
		return err
	})
	return v, p
}

// conclude waits for all that is open, reads what there is to read, and judges it.
func (f *fleet) conclude(t *testing.T, v *visitor) {
	t.Helper()
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
}

// Promise 3: a lane whose owner died without a word goes on within two ack_waits and five
// seconds, at another worker.
//
//nolint:paralleltest // it measures
func TestALostOwnersLaneGoesOn(t *testing.T) {
	const ackWait = 5 * time.Second
	f := newFleet(t, size{replicas: 1, workers: 2, doors: 1}, 1, ackWait)
	v, p := f.heldRun(t)
	next := &prompt{tag: "v0.1", session: p.session, lane: p.lane, attempts: 1}
	if _, err := v.w.prompt(next, fmt.Sprintf("%s %s 0", next.lane, next.tag)); err != nil {
		t.Fatal(err)
	}
	var owner string
	until(t, time.Minute, "who owns the lane", func(ctx context.Context) error {
		var own subjects.Own
		m, err := f.bus.Last(ctx, f.bus.Fleet().OwnStream(), f.bus.Fleet().Own("bjorn", p.lane))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(m.Data, &own); err != nil {
			return err
		}
		owner = string(own.Owner.Instance)
		return nil
	})
	lost := f.workers[0]
	if strings.HasPrefix(owner, "w1-") {
		lost = f.workers[1]
	}
	begin := time.Now()
	lost.stop(syscall.SIGKILL, 10*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), patience(f.ackWait))
	defer cancel()
	if open := v.await(ctx); len(open) > 0 {
		t.Fatalf("%q are open; the owner was %q", open, owner)
	}
	if took := time.Since(begin); took > 2*ackWait+5*time.Second {
		t.Errorf("the next prompt ended %v after its lane's owner was killed", took)
	}
	f.conclude(t, v)
	if first, then := f.h.records[p.id()], f.h.records[next.id()]; first.State != subjects.RunFailed || then.State != subjects.RunCompleted ||
		then.Owner.Instance == first.Owner.Instance {
		t.Errorf("the lost run ended as %+v, the next one as %+v", first, then)
	}
}
