package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

func (a *app) eventsCommand() *cobra.Command {
	var f lookFlags
	var o admin.EventOptions
	cmd := &cobra.Command{
		Use: "events", Short: "Show what happens in the fleet, as it happens", Args: cobra.NoArgs,
		Long: `Show the fleet's events as they come, until Ctrl-C. The plain nats tool sees the same:
nats sub 'rf.FLEET.fleet.>'.`,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		l, err := a.openLook(cmd, f.dev)
		if err != nil {
			return err
		}
		defer l.close()
		return l.Events(cmd.Context(), o, func(n admin.News) error {
			if !f.json {
				return admin.WriteNews(a.stdout, n)
			}
			_, err := fmt.Fprintf(a.stdout, "%s\n", n.Raw)
			return err
		}, func(n int) {
			_, _ = fmt.Fprintf(a.stderr, "raiderfleet: %d events were lost: they came faster than they were read\n", n)
		})
	})
	addLookFlags(cmd, &f)
	cmd.Flags().StringVar(&o.Prefix, "filter", "", "only events whose type begins with this, such as raider.")
	cmd.Flags().BoolVar(&o.Live, "live", false, "also what the sessions show their clients, as live.update, live.user, live.ask, …")
	return cmd
}
