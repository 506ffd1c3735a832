package main

import (
	"context"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

func (a *app) cancelCommand() *cobra.Command {
	return a.inspect("cancel PROMPT|SESSION", "Cancel a prompt, or all unfinished prompts of a session", cobra.ExactArgs(1), a.runCancel)
}

func (a *app) runCancel(ctx context.Context, f *admin.Fleet, args []string) (answer, error) {
	cancelled, err := f.Cancel(ctx, args[0])
	return answer{cancelled, func() error { return admin.WriteCancelled(a.stdout, cancelled) }}, err
}
