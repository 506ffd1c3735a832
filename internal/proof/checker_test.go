package proof

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"raiderfleet/subjects"
)

var (
	duration = flag.Duration("proof.duration", 0, "how long the checker injects faults; 0 = the short run of the normal tests")
	seed     = flag.Uint64("proof.seed", 0, "the seed of the checker; 0 = a new one, which is printed")
)

//nolint:paralleltest // each needs the cores for itself: its processes must keep their leases
func TestCheckerOneServer(t *testing.T) { check(t, 1, 5*time.Second) }

//nolint:paralleltest // as above
func TestCheckerThreeServers(t *testing.T) { check(t, 3, 5*time.Second) }

// check runs a fleet under faults and then holds its history against the promises.
func check(t *testing.T, replicas int, short time.Duration) {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	long := *duration
	if long == 0 {
		long = short
	}
	t.Logf("replicas %d, %v, reproduce with -proof.seed=%d", replicas, long, s)
	const ackWait = 2 * time.Second
	f := newFleet(t, size{replicas: replicas, workers: 3, doors: 3}, s, ackWait)
	visitors, run := f.clients()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	for _, r := range run {
		running.Go(func() { r(ctx) })
	}
	// A fleet in which nothing has worked yet proves nothing when something is broken.
	until(t, patience(ackWait), "a first prompt is answered", func(context.Context) error {
		if f.h.answers() == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	end := time.AfterFunc(long, stop)
	defer end.Stop()
	counts := f.faults(ctx)
	running.Wait()

	// Everything is whole again: what was accepted ends, and who lives learns it.
	whole := time.Now()
	f.drained(t)
	bounded, cancel := context.WithTimeout(t.Context(), patience(ackWait))
	defer cancel()
	for _, v := range visitors {
		running.Go(func() { v.finish(bounded) })
	}
	running.Wait()
	f.readRecords(t)
	f.loadAll(t, visitors)
	t.Logf("whole again after %v", time.Since(whole).Round(time.Millisecond))
	f.drain(t)
	f.readEvents(t)
	f.readJournal(t)
	f.readLogs(t)
	f.report(t, counts)
	bad := judge(f.h)
	if len(bad) > 0 {
		f.keepWires(t)
	}
	for i, b := range bad {
		if i == 50 {
			t.Errorf("and %d more", len(bad)-i)
			break
		}
		t.Error(b)
	}
}

// clients are those of a check: all that share a slot, and some that don't.
func (f *fleet) clients() (visitors []*visitor, run []func(context.Context)) {
	for i, names := range [][]string{
		{"1bjorn", "bjorn", "astrid"}, {"1bjorn", "1astrid", "bjorn"}, {"2bjorn", "1astrid", "1bjorn"}, {"bjorn", "astrid"}, {"bjorn"},
	} {
		v := f.newVisitor(i, names...)
		visitors, run = append(visitors, v), append(run, v.run)
	}
	bjorn, astrid := raiders()[0], raiders()[1]
	for i, d := range []*direct{
		f.newDirect(0, bjorn, "1bjorn", 2), f.newDirect(1, bjorn, "3bjorn", 2), f.newDirect(2, bjorn, "", 1), f.newDirect(3, astrid, "2astrid", 2),
	} {
		d.number = i
		run = append(run, d.run)
	}
	return visitors, run
}

// report says what was tried. A run in which nothing was proves nothing.
func (f *fleet) report(t *testing.T, counts map[string]int) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	starts, pids, states := 0, map[int]bool{}, map[subjects.RunState]int{}
	for _, e := range f.h.journal {
		pids[e.pid] = true
		if e.kind == "s" {
			starts++
		}
	}
	for _, r := range f.h.records {
		states[r.State]++
	}
	answered, asked := f.h.answers(), 0
	for _, p := range f.h.prompts {
		if p.cancelled {
			asked++
		}
	}
	t.Logf("%d prompts (%d answered to clients, %d may be cancelled), %d raiders opened ahead, %d faults: %v", len(f.h.prompts), answered, asked, len(f.h.opens), total, counts)
	t.Logf("%d runs in %d raider processes, %d connections, %v", starts, len(pids), len(f.h.wires), states)
	if starts == 0 || total == 0 || answered == 0 {
		t.Error("nothing was tried")
	}
	// Promise 6: no raider process outlives its worker.
	for pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if strings.Contains(string(cmd), "proof-raider") {
				t.Errorf("raider process %d is still there", pid)
			}
		}
	}
}

// drained waits until all that was accepted has ended. However slow the machine is, one
// prompt must end within the time of promise 3.
func (f *fleet) drained(t *testing.T) {
	t.Helper()
	fleet := f.bus.Fleet()
	left := uint64(1 << 62)
	for left > 0 {
		until(t, patience(f.ackWait), "a waiting prompt ended", func(ctx context.Context) error {
			waiting, err := f.bus.Counts(ctx, fleet.BacklogStream(), fleet.BacklogAll())
			if err != nil {
				return err
			}
			var n uint64
			for _, count := range waiting {
				n += count
			}
			if n > 0 && n >= left {
				return fmt.Errorf("still waiting: %v", waiting)
			}
			left = n
			return nil
		})
	}
}

// loadAll loads every session once more: what was completed must be there, whole.
func (f *fleet) loadAll(t *testing.T, visitors []*visitor) {
	t.Helper()
	var w *wire
	until(t, patience(f.ackWait), "a front door serves", func(ctx context.Context) (err error) {
		w, err = dialWire(ctx, f.h, f.doors[0].address())
		return err
	})
	defer w.ended()
	last := &visitor{f: f, w: w}
	for _, v := range visitors {
		for _, s := range v.visits {
			if s.id == "" {
				continue
			}
			until(t, patience(f.ackWait), "session loaded", func(ctx context.Context) error {
				if s.closing {
					if err := last.close(ctx, s); err != nil {
						return err
					}
				}
				return w.load(ctx, s.id, f.dir, f.h.of(s.id, func(p *prompt) bool {
					return f.h.records[p.id()].State == subjects.RunCompleted
				}))
			})
		}
	}
}

// drain ends front doors and workers as an operator does.
func (f *fleet) drain(t *testing.T) {
	t.Helper()
	var ending sync.WaitGroup
	for _, d := range f.doors {
		ending.Go(func() {
			if !d.stop(syscall.SIGTERM, 15*time.Second) {
				t.Error("a front door did not end within 15 s")
			}
		})
	}
	for _, w := range f.workers {
		ending.Go(func() {
			if !w.stop(syscall.SIGTERM, 30*time.Second) {
				t.Error("a worker did not drain within 30 s")
			}
		})
	}
	ending.Wait()
}
