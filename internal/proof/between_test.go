package proof

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"raiderfleet/subjects"
)

// A front door that dies between its two publishes leaves a prompt without a baton. In the
// checker the lane's next prompt brings one; here nothing more comes, and the sweep has to.
//
//nolint:paralleltest // its processes must keep their leases
func TestFrontDoorDiesBetween(t *testing.T) {
	for name, what := range map[string]held{"acknowledgement and baton": holdBaton, "publish and acknowledgement": holdAck} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, size{replicas: 1, workers: 1, doors: 1}, 1, 2*time.Second)
			v, d := f.newVisitor(0, "bjorn"), f.doors[0]
			until(t, time.Minute, "a front door serves", func(ctx context.Context) error {
				if !v.connected(ctx, f.rng(laneOfVisitor, 0, 0)) {
					return errors.New("not connected")
				}
				return nil
			})
			caught := d.tap.arm(what)
			s := v.visits[0]
			p := &prompt{tag: "v0.0", session: s.id, lane: s.lane, attempts: 1}
			if _, err := v.w.prompt(p, fmt.Sprintf("%s %s 10", p.lane, p.tag)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-caught:
			case <-t.Context().Done():
			case <-time.After(time.Minute):
				t.Fatal("nothing was published")
			}
			d.stop(syscall.SIGKILL, time.Second)
			f.drained(t)
			d.start()
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
			if rec := f.h.records[p.id()]; !p.acked || p.answer != nil || rec.State != subjects.RunCompleted {
				t.Errorf("accepted %v, answered %+v, the run ended %q", p.acked, p.answer, rec.State)
			}
		})
	}
}
