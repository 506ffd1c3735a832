package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// Run keeps the front door's presence in NODES until ctx ends, then says goodbye; meanwhile
// it declares the fleet again when NATS has lost it, if its connection has declared it before.
// It blocks. Clients can be served without it.
func (f *FrontDoor) Run(ctx context.Context) error {
	stop, err := f.b.Announce("raiderfleet-frontdoor", f.c.Version, "ACP front door of fleet "+string(f.fleet),
		map[string]string{"instance": string(f.instance), "fleet": string(f.fleet)})
	if err != nil {
		return err
	}
	defer stop()
	f.tellPresence(subjects.FrontDoorJoined)
	defer f.tellPresence(subjects.FrontDoorLeft)
	tick := time.NewTicker(f.b.AckWait())
	defer tick.Stop()
	var restoring sync.WaitGroup
	defer restoring.Wait()
	restoring.Go(func() { f.restore(ctx) })
	for {
		if err := f.present(ctx, subjects.NodeUp, 3*f.b.AckWait()); err != nil && ctx.Err() == nil {
			f.miss(err)
			f.log.Warn("presence not renewed", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			// Nothing waits for a front door's goodbye: one try.
			if err := f.present(context.WithoutCancel(ctx), subjects.NodeGoodbye, time.Minute); err != nil {
				f.log.Debug("goodbye not said", "error", err)
			}
			return nil
		}
	}
}

// restoreEvery is the least pause between two declarations.
const restoreEvery = time.Second

// miss notes an error that says that a stream is not there.
func (f *FrontDoor) miss(err error) {
	if bus.NoStream(err) {
		signal(f.missed)
	}
}

// restore declares the fleet again when NATS has come back without its streams. A worker
// does it too, but there may be none just now, and clients open sessions.
func (f *FrontDoor) restore(ctx context.Context) {
	for {
		select {
		case <-f.missed:
		case <-ctx.Done():
			return
		}
		_, err := f.b.LastSeq(ctx, f.fleet.BacklogStream())
		gone := errors.Is(err, jetstream.ErrStreamNotFound)
		switch {
		case !gone: // one that has no leader just now is there
		case !f.b.Declared():
			f.log.Warn("the fleet's streams are gone; who has declared them has to do it again")
		default:
			f.log.Warn("the fleet's streams are gone; they are declared again")
			if err := f.b.Declare(ctx); err != nil && ctx.Err() == nil {
				f.log.Error("streams not declared again, yet", "error", err)
			}
		}
		if !sleep(ctx, restoreEvery) {
			return
		}
	}
}

func (f *FrontDoor) present(ctx context.Context, state subjects.NodeState, ttl time.Duration) error {
	ctx, cancel := f.b.Bound(ctx, 0)
	defer cancel()
	f.mu.Lock()
	listen := f.listen
	f.mu.Unlock()
	n := subjects.Node{
		Role: subjects.RoleFrontDoor, Name: f.c.Name, Instance: f.instance, Host: f.host, PID: os.Getpid(),
		State: state, Started: f.started, Listen: listen, Attachments: f.attachments(),
	}
	for _, r := range f.c.Raiders {
		n.Raiders = append(n.Raiders, r.Name)
	}
	if _, err := f.b.SetJSON(ctx, f.fleet.NodesBucket(), subjects.NodeKey(f.instance), n, ttl); err != nil {
		return fmt.Errorf("announce the front door: %w", err)
	}
	return nil
}

// tell publishes a fleet event; nothing depends on its arrival.
func (f *FrontDoor) tell(e subjects.FleetEvent) {
	e.Time = time.Now()
	body, err := json.Marshal(e)
	if err != nil {
		return
	}
	if err := f.b.Conn().Publish(f.fleet.FleetEvent(e.Kind), body); err != nil {
		f.log.Debug("fleet event not sent", "error", err)
	}
}
