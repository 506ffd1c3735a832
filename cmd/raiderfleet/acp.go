package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/frontdoor"
	"raiderfleet/internal/bus"
)

// acpFlags are the flags of `acp`.
type acpFlags struct {
	dev, wait bool
	raider    string
}

func (a *app) acpCommand() *cobra.Command {
	var f acpFlags
	cmd := &cobra.Command{
		Use: "acp", Short: "Be an ACP agent on stdio, as an editor starts it", Args: cobra.NoArgs,
		Long: `Be an ACP agent on stdin and stdout: a front door of its own on the fleet's NATS. With
--dev, or when no NATS is configured, that is the dev fleet of this machine; it is started
if it isn't there, and leaves a minute after its last use. stdout carries nothing but the
protocol.`,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error { return a.runACP(cmd.Context(), cmd, f) }),
	}
	addKeyFlags(cmd.Flags(), func(path string) bool {
		return path == "on_disconnect" || path == "frontdoor.max_line" || path == "nats.credentials_file"
	})
	cmd.Flags().BoolVar(&f.dev, "dev", false, "use the dev fleet of this machine, whatever NATS is configured")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "after the end of stdin wait for running turns, not 5 s only")
	cmd.Flags().StringVar(&f.raider, "raider", "", "raider or slot for sessions that name none (default: the first)")
	addLeaveAfter(cmd)
	return cmd
}

// addLeaveAfter adds the hidden flag for the dev fleet that the command may start.
func addLeaveAfter(cmd *cobra.Command) {
	cmd.Flags().Duration("leave-after", leaveAfter, "when a dev fleet that this starts leaves if nobody uses it")
	_ = cmd.Flags().MarkHidden("leave-after") // it exists
}

func (a *app) runACP(ctx context.Context, cmd *cobra.Command, f acpFlags) error {
	c, log, err := a.setup(cmd, slog.LevelWarn)
	if err != nil {
		return err
	}
	b, fc, err := a.ownDoor(ctx, cmd, c, f.dev, log)
	if err != nil {
		return orStopped(ctx, err)
	}
	defer b.Close()
	fc.DefaultRaider = f.raider
	if f.wait {
		fc.EOFGrace = -1
	}
	door, err := frontdoor.New(b, fc)
	if err != nil {
		return err
	}
	return together(ctx, door.Run, func(ctx context.Context) error {
		err := door.Serve(ctx, a.stdin, a.stdout, frontdoor.ConnOptions{})
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// ownDoor connects for a front door of this process: to the dev fleet, or to the NATS
// that is configured.
func (a *app) ownDoor(ctx context.Context, cmd *cobra.Command, c *config.Config, dev bool, log *slog.Logger) (*bus.Bus, frontdoor.Config, error) {
	if dev || len(c.NATS.URLs) == 0 {
		j, err := a.joinOrStart(ctx, cmd, c, log)
		if err != nil {
			return nil, frontdoor.Config{}, err
		}
		return j.Bus, a.joinedFrontDoor(c, j.Ready, log), nil
	}
	b, err := configuredBus(ctx, c, cmd.Name(), log)
	return b, frontDoorOf(c, log), err
}
