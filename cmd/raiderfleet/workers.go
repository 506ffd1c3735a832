package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

func (a *app) workersCommand() *cobra.Command {
	return a.inspect("workers", "List the workers", cobra.NoArgs, a.runWorkers)
}

func (a *app) runWorkers(ctx context.Context, f *admin.Fleet, _ []string) (answer, error) {
	workers, err := f.LiveWorkers(ctx)
	return answer{workers, func() error { return admin.WriteWorkers(a.stdout, workers, time.Now()) }}, err
}
