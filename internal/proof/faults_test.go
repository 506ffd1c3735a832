package proof

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// fault is something that goes wrong, and is whole again when do returns. do says whether
// it came to it.
type fault struct {
	name   string
	weight int
	do     func(ctx context.Context, rng *rand.Rand) bool
}

// faults injects faults until ctx ends, in the back (workers and servers) and in front at
// once. It returns how many of each kind there were.
func (f *fleet) faults(ctx context.Context) map[string]int {
	counts := map[string]int{}
	var mu sync.Mutex
	var injecting sync.WaitGroup
	for part, kinds := range [][]fault{append(f.workerFaults(), f.serverFaults()...), f.doorFaults()} {
		var all []fault
		for _, k := range kinds {
			for range k.weight {
				all = append(all, k)
			}
		}
		injecting.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				rng := f.rng(laneOfFaults, part, n)
				k := all[rng.IntN(len(all))]
				if k.do(ctx, rng) {
					mu.Lock()
					counts[k.name]++
					mu.Unlock()
				}
				pause(ctx, f.part(rng, 0.05, 0.4))
			}
		})
	}
	injecting.Wait()
	return counts
}

// part is a random part of an ack_wait.
func (f *fleet) part(rng *rand.Rand, from, to float64) time.Duration {
	return time.Duration((from + (to-from)*rng.Float64()) * float64(f.ackWait))
}

func (f *fleet) workerFaults() []fault {
	one := func(rng *rand.Rand) int { return rng.IntN(len(f.workers)) }
	kinds := []fault{
		{"worker kill -9", 2, func(ctx context.Context, rng *rand.Rand) bool {
			w := f.workers[one(rng)]
			w.stop(syscall.SIGKILL, time.Second)
			pause(ctx, f.part(rng, 0, 0.5))
			w.start(f.tb)
			return true
		}},
		{"worker freeze", 2, func(ctx context.Context, rng *rand.Rand) bool {
			f.workers[one(rng)].freeze(ctx, f.part(rng, 0.2, 2))
			return true
		}},
		{"worker drain", 1, func(_ context.Context, rng *rand.Rand) bool {
			w := f.workers[one(rng)]
			w.stop(syscall.SIGTERM, 20*time.Second)
			w.start(f.tb)
			return true
		}},
		{"worker cut off, late delivery", 2, func(ctx context.Context, rng *rand.Rand) bool {
			f.cut(ctx, f.part(rng, 0.1, 1.8), false, f.proxies[one(rng)])
			return true
		}},
		{"worker cut off", 2, func(ctx context.Context, rng *rand.Rand) bool {
			f.cut(ctx, f.part(rng, 0.1, 1.5), true, f.proxies[one(rng)])
			return true
		}},
		{"baton twice", 1, func(ctx context.Context, _ *rand.Rand) bool { return f.doubleBaton(ctx) }},
	}
	if f.replicas > 1 {
		kinds = append(kinds, fault{"worker changes server", 1, func(_ context.Context, rng *rand.Rand) bool {
			p := f.proxies[one(rng)]
			p.aim(strings.TrimPrefix(f.urls[rng.IntN(len(f.urls))], "nats://"))
			p.restore(true)
			return true
		}})
	}
	return kinds
}

func (f *fleet) serverFaults() []fault {
	one := func(rng *rand.Rand) int { return rng.IntN(len(f.servers)) }
	kinds := []fault{
		{"server kill -9", 2, func(ctx context.Context, rng *rand.Rand) bool {
			s := f.servers[one(rng)]
			s.stop(syscall.SIGKILL, time.Second)
			pause(ctx, f.part(rng, 0, 0.3))
			s.start(f.tb)
			f.settle(ctx)
			return true
		}},
		{"server freeze", 1, func(ctx context.Context, rng *rand.Rand) bool {
			f.servers[one(rng)].freeze(ctx, f.part(rng, 0.1, 1.5))
			f.settle(ctx)
			return true
		}},
	}
	if f.replicas == 1 {
		return kinds
	}
	// Long enough for the others to elect new leaders, as a rule.
	long := func(rng *rand.Rand) time.Duration { return f.part(rng, 0.3, 5) }
	return append(kinds, []fault{
		{"step-down", 2, func(_ context.Context, rng *rand.Rand) bool { return f.stepDown(rng) }},
		{"rolling restart", 1, func(ctx context.Context, _ *rand.Rand) bool {
			for _, s := range f.servers {
				s.stop(syscall.SIGTERM, 10*time.Second)
				s.start(f.tb)
				f.settle(ctx)
			}
			return true
		}},
		{"server down for long", 1, func(ctx context.Context, rng *rand.Rand) bool {
			s := f.servers[one(rng)]
			s.stop(syscall.SIGKILL, time.Second)
			pause(ctx, long(rng))
			s.start(f.tb)
			f.settle(ctx)
			return true
		}},
		{"server cut off from the others, late delivery", 2, func(ctx context.Context, rng *rand.Rand) bool {
			f.cut(ctx, long(rng), false, f.routes[one(rng)]...)
			f.settle(ctx)
			return true
		}},
		{"server cut off from the others", 2, func(ctx context.Context, rng *rand.Rand) bool {
			f.cut(ctx, long(rng), true, f.routes[one(rng)]...)
			f.settle(ctx)
			return true
		}},
		{"server frozen for long", 1, func(ctx context.Context, rng *rand.Rand) bool {
			f.servers[one(rng)].freeze(ctx, long(rng))
			f.settle(ctx)
			return true
		}},
	}...)
}

func (f *fleet) doorFaults() []fault {
	one := func(rng *rand.Rand) *door { return f.doors[rng.IntN(len(f.doors))] }
	if len(f.doors) == 0 {
		return nil
	}
	// dies kills a front door at the moment at which its tap has caught something.
	dies := func(what held) func(context.Context, *rand.Rand) bool {
		return func(ctx context.Context, rng *rand.Rand) bool {
			d := one(rng)
			caught := d.tap.arm(what)
			wait := time.NewTimer(f.ackWait)
			defer wait.Stop()
			select {
			case <-caught:
			case <-wait.C:
			case <-ctx.Done():
			}
			if !d.tap.disarm() {
				return false
			}
			d.stop(syscall.SIGKILL, time.Second)
			pause(ctx, f.part(rng, 0, 0.5))
			d.start()
			return true
		}
	}
	return []fault{
		{"front door kill -9", 2, func(ctx context.Context, rng *rand.Rand) bool {
			d := one(rng)
			d.stop(syscall.SIGKILL, time.Second)
			pause(ctx, f.part(rng, 0, 0.5))
			d.start()
			return true
		}},
		{"front door dies between two publishes", 3, dies(holdBaton)},
		{"front door dies before it learns that it published", 3, dies(holdAck)},
		{"front door freeze", 2, func(ctx context.Context, rng *rand.Rand) bool {
			one(rng).freeze(ctx, f.part(rng, 0.1, 2))
			return true
		}},
		{"front door cut off, late delivery", 2, func(ctx context.Context, rng *rand.Rand) bool {
			f.cut(ctx, f.part(rng, 0.1, 1.8), false, one(rng).px)
			return true
		}},
		{"front door cut off", 2, func(ctx context.Context, rng *rand.Rand) bool {
			f.cut(ctx, f.part(rng, 0.1, 1.5), true, one(rng).px)
			return true
		}},
		{"front door restart", 1, func(_ context.Context, rng *rand.Rand) bool {
			d := one(rng)
			d.stop(syscall.SIGTERM, 20*time.Second)
			d.start()
			return true
		}},
	}
}

// freeze stops the process for a while.
func (p *process) freeze(ctx context.Context, d time.Duration) {
	p.signal(syscall.SIGSTOP)
	pause(ctx, d)
	p.signal(syscall.SIGCONT)
}

// cut cuts proxies for a while; what is sent meanwhile is lost or comes late.
func (f *fleet) cut(ctx context.Context, d time.Duration, lose bool, all ...*proxy) {
	for _, p := range all {
		p.cut()
	}
	pause(ctx, d)
	for _, p := range all {
		p.restore(lose)
	}
}

// settle waits until JetStream answers again, at the most half a minute.
func (f *fleet) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		try, done := context.WithTimeout(ctx, time.Second)
		_, err := f.bus.LastSeq(try, f.bus.Fleet().OwnStream())
		done()
		if err == nil {
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// doubleBaton makes a second baton for a lane that has an owner, as a server that
// crashed does.
func (f *fleet) doubleBaton(ctx context.Context) bool {
	try, done := f.bus.Bound(ctx, f.ackWait)
	defer done()
	fleet := f.bus.Fleet()
	m, err := f.bus.Next(try, fleet.ReadyStream(), fleet.ReadyAll(), 1)
	if err != nil || f.bus.DeleteMessage(try, fleet.ReadyStream(), m.Seq) != nil {
		return false
	}
	_, _ = f.bus.Publish(try, &nats.Msg{Subject: m.Subject}) // refused: the owner was faster
	return true
}

func (f *fleet) stepDown(rng *rand.Rand) bool {
	fleet := f.bus.Fleet()
	what := []string{
		"STREAM.LEADER.STEPDOWN." + fleet.ReadyStream(), "STREAM.LEADER.STEPDOWN." + fleet.OwnStream(),
		"STREAM.LEADER.STEPDOWN." + fleet.BacklogStream(), "STREAM.LEADER.STEPDOWN." + fleet.EventsStream(),
		"STREAM.LEADER.STEPDOWN.KV_" + fleet.RunsBucket(), "STREAM.LEADER.STEPDOWN.KV_" + fleet.SessionsBucket(),
		"STREAM.LEADER.STEPDOWN." + fleet.TranscriptStream(),
	}
	for _, r := range raiders() {
		what = append(what, "CONSUMER.LEADER.STEPDOWN."+fleet.ReadyStream()+"."+f.bus.Layout().ReadyConsumer(r.name, subjects.AnyClass, 0).Name)
	}
	_, err := f.bus.Conn().Request("$JS.API."+what[rng.IntN(len(what))], nil, time.Second)
	return err == nil
}
