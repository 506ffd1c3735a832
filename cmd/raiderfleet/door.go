package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/frontdoor"
	"raiderfleet/internal/devfleet"
)

// door is a connection to a front door, with what has to end after it.
type door struct {
	conn io.ReadWriteCloser
	// raider is the default one, as far as it is known.
	raider string
	// close ends what was started for the connection, and waits for it. Not nil.
	close func() error
}

// openDoor finds the front door for a prompt: the one that --connect names; with --dev
// that of the dev fleet, or of a throw-away fleet; else one of our own on the NATS that is
// configured, or that of the dev fleet.
func (a *app) openDoor(ctx context.Context, cmd *cobra.Command, c *config.Config, f promptFlags, log *slog.Logger) (door, error) {
	if f.connect != "" {
		return dialDoor(ctx, f.connect)
	}
	if !f.dev && len(c.NATS.URLs) > 0 {
		return a.pipeDoor(ctx, cmd, c, log)
	}
	j, err := devfleet.Join(ctx, devfleet.JoinOptions{Dir: devDir(c), Name: cmd.Name(), MaxBacklog: c.MaxBacklog, Logger: log})
	switch {
	case err == nil:
		// The connection to NATS is kept: a fleet that is in use does not leave.
		d, err := dialDoor(ctx, j.Ready.ACP)
		if err != nil {
			j.Bus.Close()
			return door{}, err
		}
		d.close = func() error { j.Bus.Close(); return nil }
		if len(j.Ready.Raiders) > 0 {
			d.raider = j.Ready.Raiders[0].Name
		}
		return d, nil
	case !errors.Is(err, devfleet.ErrNotRunning):
		return door{}, err
	case f.dev:
		return throwAwayDoor(ctx, c, log)
	}
	return door{}, fmt.Errorf("%w, or give --dev for a fleet that lives as long as the prompt", noFleet(err))
}

func dialDoor(ctx context.Context, address string) (door, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return door{}, fmt.Errorf("connect to the front door: %w", err)
	}
	return door{conn: conn, close: func() error { return nil }}, nil
}

// pipeDoor is a front door of this process.
func (a *app) pipeDoor(ctx context.Context, cmd *cobra.Command, c *config.Config, log *slog.Logger) (door, error) {
	b, fc, err := a.ownDoor(ctx, cmd, c, false, log)
	if err != nil {
		return door{}, err
	}
	fd, err := frontdoor.New(b, fc)
	if err != nil {
		b.Close()
		return door{}, err
	}
	bg := background(ctx)
	bg.run(fd.Run)
	return door{
		conn: bg.serve(fd), raider: string(fc.Raiders[0].Name),
		close: func() error { err := bg.stop(); b.Close(); return err },
	}, nil
}

// throwAwayDoor is the front door of a fleet in this process that nobody else sees.
func throwAwayDoor(ctx context.Context, c *config.Config, log *slog.Logger) (door, error) {
	o, err := devOptions(c, log)
	if err != nil {
		return door{}, err
	}
	fleet, err := devfleet.New(o)
	if err != nil {
		return door{}, err
	}
	bg := background(ctx)
	serving := make(chan devfleet.Serving, 1)
	bg.run(func(ctx context.Context) error {
		return fleet.Run(ctx, func(s devfleet.Serving) error { serving <- s; return nil }, nil)
	})
	select {
	case s := <-serving:
		return door{conn: bg.serve(s.FrontDoor), raider: c.Raiders[0].Name, close: bg.stop}, nil
	case <-bg.ctx.Done(): // the fleet ended
	case <-ctx.Done():
	}
	if err := bg.stop(); err != nil {
		return door{}, err
	}
	return door{}, ctx.Err()
}
