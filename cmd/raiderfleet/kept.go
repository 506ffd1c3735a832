package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"raiderfleet/frontdoor"
	"raiderfleet/internal/admin"
	"raiderfleet/internal/bus"
	"raiderfleet/internal/devfleet"
	"raiderfleet/subjects"
)

// keptDoor is a front door of this process that leaves everything as it is when it goes:
// runs go on, waiting prompts stay, whatever on_disconnect says of the clients that come
// and go.
type keptDoor struct {
	*admin.Fleet
	bus  *bus.Bus
	door *frontdoor.FrontDoor
	work *work
	log  *slog.Logger
}

// openKept connects and starts the front door; serve connects to it, close ends it all.
func (a *app) openKept(cmd *cobra.Command, dev bool) (*keptDoor, error) {
	ctx := cmd.Context()
	c, log, err := a.setup(cmd, slog.LevelWarn)
	if err != nil {
		return nil, err
	}
	k := &keptDoor{log: log}
	var fc frontdoor.Config
	if dev || len(c.NATS.URLs) == 0 {
		j, err := devfleet.Join(ctx, devfleet.JoinOptions{Dir: devDir(c), Name: cmd.Name(), MaxBacklog: c.MaxBacklog, Logger: log})
		if err != nil {
			return nil, noFleet(err)
		}
		k.bus, fc = j.Bus, a.joinedFrontDoor(c, j.Ready, log)
	} else {
		if k.bus, err = configuredBus(ctx, c, cmd.Name(), log); err != nil {
			return nil, orCancelled(ctx, err)
		}
		fc = frontDoorOf(c, log)
	}
	k.Fleet = admin.New(k.bus)
	if fc.Raiders, err = k.offered(ctx, fc.Raiders, c.File != ""); err != nil {
		k.bus.Close()
		return nil, err
	}
	fc.OnDisconnect = frontdoor.OnDisconnectKeep
	if k.door, err = frontdoor.New(k.bus, fc); err != nil {
		k.bus.Close()
		return nil, err
	}
	k.work = background(ctx)
	return k, nil
}

// offered are the raiders of the configuration and those that the fleet has. Without a
// configuration file the fleet's come first: its default is the default.
func (k *keptDoor) offered(ctx context.Context, own []frontdoor.Raider, configured bool) ([]frontdoor.Raider, error) {
	served, err := k.Served(ctx)
	if err != nil {
		return nil, err
	}
	others := make([]frontdoor.Raider, 0, len(served))
	for _, name := range served {
		if !slices.ContainsFunc(own, func(r frontdoor.Raider) bool { return r.Name == name }) {
			others = append(others, frontdoor.Raider{Name: name})
		}
	}
	if configured || slices.ContainsFunc(own, func(r frontdoor.Raider) bool { return slices.Contains(served, r.Name) }) {
		return append(slices.Clip(own), others...), nil
	}
	return append(others, own...), nil
}

// serve connects a client of a principal.
func (k *keptDoor) serve(p subjects.Principal) io.ReadWriteCloser {
	return k.work.serveAs(k.door, frontdoor.ConnOptions{GoneAtEOF: true, Principal: p})
}

func (k *keptDoor) close() error {
	defer k.bus.Close()
	if err := k.work.stop(); err != nil {
		return fmt.Errorf("end the front door: %w", err)
	}
	return nil
}
