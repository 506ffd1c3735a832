package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// Worker runs raiders for the fleet. Safe for many goroutines.
type Worker struct {
	b        *bus.Bus
	c        Config
	fleet    subjects.Fleet
	instance subjects.Instance
	host     string
	started  time.Time
	log      *slog.Logger
	raiders  map[subjects.Raider]*Raider
	places   *places
	lock     *stateLock // set by Run
	shims    *shim.Pool // set by Run
	ready    chan struct{}
	drain    chan struct{} // closed when the worker is told to end
	unserved chan struct{} // capacity 1: a request for batons was turned away
	waiting  othersWaiting
	keepFor  time.Duration // keepEventsFor, but in tests
	given    chan baton    // offered by other workers, for the puller
	agents   agents
	learnt   chan struct{} // capacity 1: agents have changed

	mu    sync.Mutex // guards lanes
	lanes map[subjects.LaneID]*lane
	all   sync.WaitGroup
}

// New checks the configuration.
func New(b *bus.Bus, c Config) (*Worker, error) {
	if c.Name == "" {
		c.Name = "worker"
	}
	if c.StateDir == "" {
		return nil, errors.New("worker: a state directory is required")
	}
	if c.Capacity <= 0 {
		c.Capacity = 4
	}
	if c.MaxWarm <= 0 {
		c.MaxWarm = 4 * c.Capacity
	}
	c.MaxWarm = max(c.MaxWarm, c.Capacity)
	if c.IdleTTL <= 0 {
		c.IdleTTL = 10 * time.Minute
	}
	if c.ReconnectGrace <= 0 {
		c.ReconnectGrace = 15 * time.Second
	}
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if len(c.Exe) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("worker: find own binary: %w", err)
		}
		c.Exe = []string{exe, "shim"}
	}
	if len(c.Raiders) == 0 {
		return nil, errors.New("worker: no raiders to serve")
	}
	instance, err := subjects.NewInstance(c.Name)
	if err != nil {
		return nil, fmt.Errorf("worker: name: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	w := &Worker{
		b: b, c: c, fleet: b.Fleet(), instance: instance, host: host,
		log:     c.Logger.With("worker", string(instance)),
		raiders: map[subjects.Raider]*Raider{},
		places:  newPlaces(c.Capacity),
		started: time.Now(),
		ready:   make(chan struct{}),
		drain:   make(chan struct{}),
		given:   make(chan baton, 16),
		keepFor: keepEventsFor,
		lanes:   map[subjects.LaneID]*lane{},

		unserved: make(chan struct{}, 1),
		learnt:   make(chan struct{}, 1),
	}
	for i := range c.Raiders {
		r := c.Raiders[i]
		if r.Agent != nil {
			w.agents.set(r.Name, *r.Agent)
		}
		if len(r.Command) == 0 {
			return nil, fmt.Errorf("worker: raider %s has no command", r.Name)
		}
		if r.IdleTTL == 0 {
			r.IdleTTL = c.IdleTTL
		}
		if r.MaxAttempts == 0 {
			r.MaxAttempts = 3
		}
		w.raiders[r.Name] = &r
	}
	return w, nil
}

// Instance is the worker's id, new at every start.
func (w *Worker) Instance() subjects.Instance { return w.instance }

// Ready is closed when the worker takes batons.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Busy says whether a run is live.
func (w *Worker) Busy() bool { return w.places.inUse() > 0 }

// Lanes are the lanes that this worker owns, in no order.
func (w *Worker) Lanes() []subjects.LaneStatus {
	var out []subjects.LaneStatus
	for _, l := range w.snapshot() {
		out = append(out, l.status())
	}
	return out
}

// Run serves until ctx ends, then drains: no new batons, DrainTimeout for live runs,
// lanes released, goodbye said. It returns nil after a drain, and when all that it
// started has ended. Call it once.
func (w *Worker) Run(ctx context.Context) error {
	lock, err := lockState(ctx, w.c.StateDir)
	if err != nil {
		return err
	}
	defer lock.release()
	w.lock = lock
	// work outlives ctx: it is what live runs, releases and the goodbye use.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)

	if earlier := lock.earlier(); earlier != "" {
		// Its processes are gone, or the lock would not be ours: whoever waits for an
		// answer of that instance needn't wait any longer.
		if err := w.goodbye(work, earlier); err != nil {
			w.log.Warn("goodbye for the earlier instance failed", "earlier", string(earlier), "error", err)
		}
	}
	if err := lock.note(w.instance); err != nil {
		return err
	}
	if err := w.consumers(ctx); err != nil {
		return err
	}
	sub, err := w.b.Conn().Subscribe(w.fleet.Worker(w.instance), w.handleRequest)
	if err != nil {
		return fmt.Errorf("subscribe to the worker's subject: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection's end does it as well
	if err := w.b.Conn().FlushWithContext(bounded(ctx, w.b.AckWait())); err != nil {
		return fmt.Errorf("subscribe to the worker's subject: %w", err)
	}
	if err := w.present(work, subjects.NodeUp); err != nil {
		return err
	}
	w.warnOfTwins(ctx)
	unannounce, err := w.b.Announce("raiderfleet-worker", w.c.Version, "runs raiders for fleet "+string(w.fleet),
		map[string]string{"fleet": string(w.fleet), "instance": string(w.instance)})
	if err != nil {
		return err
	}
	defer unannounce()
	w.tellJoined()

	var background sync.WaitGroup
	w.shims = shim.NewPool(w.c.Exe, lock.file, shimsAhead)
	background.Go(func() {
		if err := w.shims.Run(work); err != nil {
			w.log.Warn("no shim started ahead", "error", err)
		}
	})
	background.Go(func() { w.keepPresence(work) })
	background.Go(func() { w.keepConsumers(work) })
	background.Go(func() { w.sweep(work) })
	background.Go(func() { w.probe(work) })
	w.log.Info("worker serves", "raiders", w.names(), "capacity", w.c.Capacity, "max_warm", w.c.MaxWarm)
	close(w.ready)

	w.pull(ctx, work)

	// Soft stop: live runs get their time, warm lanes go at once.
	w.log.Info("worker drains: it waits for runs to end", "running", w.places.inUse(), "at_most", w.c.DrainTimeout)
	close(w.drain)
	w.tell(subjects.FleetEvent{Kind: subjects.WorkerDraining})
	ended := make(chan struct{})
	go func() { w.all.Wait(); close(ended) }()
	timer := time.NewTimer(w.c.DrainTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		w.hardStop(ended)
	}
	stop(context.Canceled)
	background.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.b.AckWait()/2)
	defer cancel()
	if err := w.goodbye(last, w.instance); err != nil {
		w.log.Warn("goodbye failed", "error", err)
	}
	w.tell(subjects.FleetEvent{Kind: subjects.WorkerLeft})
	return nil
}

func (w *Worker) names() []string {
	var out []string
	for n := range w.raiders {
		out = append(out, string(n))
	}
	slices.Sort(out)
	return out
}

// consumers makes the durable consumer of each raider that is served.
func (w *Worker) consumers(ctx context.Context) error {
	for name := range w.raiders {
		c := w.b.Layout().ReadyConsumer(name, subjects.AnyClass, w.b.AckWait())
		if err := w.b.DeclareConsumer(ctx, w.fleet.ReadyStream(), c); err != nil {
			return err
		}
	}
	return nil
}

// keepConsumers declares the consumers again when a request for a baton found none: someone
// has deleted one, or it has no leader at the time, and then this changes nothing.
func (w *Worker) keepConsumers(ctx context.Context) {
	for {
		select {
		case <-w.unserved:
		case <-ctx.Done():
			return
		}
		err := w.consumers(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			// The servers have lost all: what is new is served again.
			w.log.Warn("the fleet's streams are gone; they are declared again")
			if err = w.b.Declare(ctx); err == nil {
				err = w.consumers(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("consumers not declared again, yet", "error", err)
		}
	}
}

// tell publishes a fleet event; nothing depends on it.
func (w *Worker) tell(e subjects.FleetEvent) {
	e.Time = time.Now()
	if e.Instance == "" {
		e.Instance = w.instance
	}
	publishFleetEvent(w.b, e)
}

// hardStop fails what still runs, with the reason, and returns when all has ended. A lane
// that can't even say so within an ack_wait is lost.
func (w *Worker) hardStop(ended <-chan struct{}) {
	give := time.NewTimer(w.b.AckWait())
	defer give.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		w.stopRuns() // again and again: a run may just have begun
		select {
		case <-ended:
			return
		case <-again.C:
		case <-give.C:
			for _, l := range w.snapshot() {
				l.lose("the worker was stopped")
			}
			<-ended
			return
		}
	}
}

func (w *Worker) stopRuns() {
	for _, l := range w.snapshot() {
		l.stopRun(errWorkerStops)
	}
}

// shimsAhead is how many shims wait for a raider: the start of our own binary is most of
// what a cold start costs beyond the raider's own.
const shimsAhead = 2

// leaseEnd is when a renewal that began at begin runs out: 0.9 ack_wait later, so that
// whoever waits one ack_wait for an owner never overlaps with it.
func (w *Worker) leaseEnd(begin shim.Boottime) shim.Boottime {
	return begin + shim.Boottime(w.b.AckWait()*9/10)
}
