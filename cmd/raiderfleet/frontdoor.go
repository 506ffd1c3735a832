package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
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
	var web net.Listener
	if c.FrontDoor.HTTP != config.NoHTTP {
		if web, err = listenWeb(ctx, c, log); err != nil {
			return portHint(err)
		}
		defer func() { _ = web.Close() }() // as above
	}
	b, err := serverBus(ctx, c, "front door", log)
	if err != nil {
		return orStopped(ctx, err)
	}
	defer b.Close()
	door, err := frontdoor.New(b, frontDoorOf(c, log))
	if err != nil {
		return err
	}
	ready := devfleet.Ready{PID: os.Getpid(), ACP: listener.Addr().String(), Fleet: c.Fleet}
	parts := []func(context.Context) error{
		door.Run,
		func(ctx context.Context) error { return door.ServeTCP(ctx, listener) },
	}
	if web != nil {
		ready.HTTP = web.Addr().String()
		parts = append(parts, func(ctx context.Context) error { return door.ServeWeb(ctx, web) })
	}
	log.Info("front door serves", "acp", ready.ACP, "http", ready.HTTP, "fleet", c.Fleet)
	return together(ctx, append(parts, func(ctx context.Context) error { return untilDone(ctx, readyFile, ready) })...)
}

// listenWeb opens the listener for HTTP and WebSocket. A port that nobody asked for may be another one: several front doors run on a host.
func listenWeb(ctx context.Context, c *config.Config, log *slog.Logger) (net.Listener, error) {
	address := c.FrontDoor.HTTP
	if c.Origin("frontdoor.http").Source != config.SourceDefault {
		l, err := port.Listen(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("listen for ACP over HTTP: %w", err)
		}
		return l, nil
	}
	l, taken, err := port.ListenNear(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("listen for ACP over HTTP: %w", err)
	}
	if taken != nil {
		log.Info("the default port for HTTP is taken, another is used", "address", l.Addr().String(), "why", taken.Error())
	}
	return l, nil
}
