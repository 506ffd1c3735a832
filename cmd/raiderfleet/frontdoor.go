package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/frontdoor"
	"raiderfleet/internal/devfleet"
	"raiderfleet/internal/port"
)

func (a *app) frontDoorCommand() *cobra.Command {
	return a.server("frontdoor", "Run a front door: ACP over TCP", "worker", "address and pid", runFrontDoor)
}

func runFrontDoor(ctx context.Context, c *config.Config, log *slog.Logger, readyFile string) error {
	// Before NATS: that a port is taken should not be said late.
	listener, err := port.Listen(ctx, c.FrontDoor.Listen)
	if err != nil {
		return portHint(fmt.Errorf("listen for ACP: %w", err))
	}
	defer func() { _ = listener.Close() }() // closed already when it has served
	b, err := serverBus(ctx, c, "front door", log)
	if err != nil {
		return orStopped(ctx, err)
	}
	defer b.Close()
	door, err := frontdoor.New(b, frontDoorOf(c, log))
	if err != nil {
		return err
	}
	log.Info("front door serves", "acp", listener.Addr().String(), "fleet", c.Fleet)
	return together(ctx,
		door.Run,
		func(ctx context.Context) error { return door.ServeTCP(ctx, listener) },
		func(ctx context.Context) error {
			return untilDone(ctx, readyFile, devfleet.Ready{PID: os.Getpid(), ACP: listener.Addr().String(), Fleet: c.Fleet})
		},
	)
}
