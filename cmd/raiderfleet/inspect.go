package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

// inspect makes a command that looks at the fleet. Its run function returns what is to be
// printed as JSON, and how it is written for people.
func (a *app) inspect(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, f *admin.Fleet, args []string) (answer, error)) *cobra.Command {
	var asJSON, dev bool
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		c, log, err := a.setup(cmd, slog.LevelWarn)
		if err != nil {
			return err
		}
		b, err := a.clientBus(cmd.Context(), c, dev, cmd.Name(), log)
		if err != nil {
			return err
		}
		defer b.Close()
		answer, err := run(cmd.Context(), admin.New(b), args)
		if err != nil {
			return err
		}
		if !asJSON {
			return answer.table()
		}
		body, err := json.Marshal(answer.value)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s\n", body)
		return err
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&dev, "dev", false, "ask the dev fleet of this machine, whatever NATS is configured")
	addKeyFlags(cmd.Flags(), func(path string) bool { return path == "nats.credentials_file" })
	return cmd
}

// answer is what a command found.
type answer struct {
	value any
	table func() error
}
