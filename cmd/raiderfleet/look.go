package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/internal/admin"
	"raiderfleet/internal/bus"
)

// lookFlags are the flags of commands that look at a fleet.
type lookFlags struct{ dev, json bool }

// addLookFlags adds them, and those that say how to reach the fleet.
func addLookFlags(cmd *cobra.Command, f *lookFlags) {
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&f.dev, "dev", false, "ask the dev fleet of this machine, whatever NATS is configured")
	addKeyFlags(cmd.Flags(), func(path string) bool { return path == "nats.credentials_file" })
}

// look is a connection of a command to its fleet. close ends it.
type look struct {
	*admin.Fleet
	bus    *bus.Bus
	config *config.Config
	log    *slog.Logger
}

func (l *look) close() { l.bus.Close() }

// openLook connects a command to the fleet.
func (a *app) openLook(cmd *cobra.Command, dev bool) (*look, error) {
	c, log, err := a.setup(cmd, slog.LevelWarn)
	if err != nil {
		return nil, err
	}
	b, err := a.clientBus(cmd.Context(), c, dev, cmd.Name(), log)
	if err != nil {
		return nil, orCancelled(cmd.Context(), err)
	}
	return &look{admin.New(b), b, c, log}, nil
}

// writeJSON writes a value as a line.
func writeJSON(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", body)
	return err
}
