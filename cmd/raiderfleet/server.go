package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/internal/devfleet"
)

// server makes the command of a part of the fleet that runs until it is told to end.
// without is the section of the configuration that is another part's, ready what the ready
// file holds.
func (a *app) server(use, short, without, ready string, run func(ctx context.Context, c *config.Config, log *slog.Logger, readyFile string) error) *cobra.Command {
	var readyFile string
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		c, log, err := a.setup(cmd, slog.LevelInfo)
		if err != nil {
			return err
		}
		a.warnOfHall(c)
		return run(cmd.Context(), c, log, readyFile)
	})
	addServerFlags(cmd, without)
	cmd.Flags().StringVar(&readyFile, "ready-file", "", "write "+ready+" there, as JSON, when it serves")
	return cmd
}

// untilDone writes the ready file, if one is wanted, and blocks until ctx ends.
func untilDone(ctx context.Context, path string, r devfleet.Ready) error {
	if path != "" {
		if err := devfleet.WriteReady(path, r); err != nil {
			return err
		}
	}
	<-ctx.Done()
	if path != "" {
		if err := devfleet.RemoveReady(path, r); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return nil
}
