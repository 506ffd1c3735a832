package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

func (a *app) queueCommand() *cobra.Command {
	return a.inspect("queue", "List the prompts that run or wait, and why", cobra.NoArgs, a.runQueue)
}

func (a *app) runQueue(ctx context.Context, f *admin.Fleet, _ []string) (answer, error) {
	queue, err := f.Queue(ctx)
	return answer{queue, func() error { return admin.WriteQueue(a.stdout, queue, time.Now()) }}, err
}
