package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/internal/devfleet"
	"raiderfleet/worker"
)

func (a *app) workerCommand() *cobra.Command {
	return a.server("worker", "Run a worker: raiders of this host", "frontdoor", "the pid", runWorker)
}

func runWorker(ctx context.Context, c *config.Config, log *slog.Logger, readyFile string) error {
	wc, err := workerOf(c, c.StateDir, log)
	if err != nil {
		return err
	}
	b, err := serverBus(ctx, c, "worker "+c.Worker.Name, log)
	if err != nil {
		return orStopped(ctx, err)
	}
	defer b.Close()
	w, err := worker.New(b, wc)
	if err != nil {
		return err
	}
	return together(ctx,
		w.Run,
		func(ctx context.Context) error {
			select {
			case <-w.Ready():
				return untilDone(ctx, readyFile, devfleet.Ready{PID: os.Getpid(), Fleet: c.Fleet})
			case <-ctx.Done():
				return nil
			}
		},
	)
}
