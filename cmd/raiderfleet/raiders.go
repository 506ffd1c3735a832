package main

import (
	"context"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
	"raiderfleet/subjects"
)

func (a *app) raidersCommand() *cobra.Command {
	var cmd *cobra.Command
	cmd = a.inspect("raiders", "List the raiders, who serves them, and what runs and waits", cobra.NoArgs,
		func(ctx context.Context, f *admin.Fleet, _ []string) (answer, error) {
			c, err := a.settings(cmd)
			if err != nil {
				return answer{}, err
			}
			configured := map[subjects.Raider]string{}
			// Without a file there is the demo raider only, which says nothing of this fleet.
			if c.File != "" {
				for _, r := range c.Raiders {
					configured[subjects.Raider(r.Name)] = r.Description
				}
			}
			raiders, err := f.Raiders(ctx, configured)
			return answer{raiders, func() error { return admin.WriteRaiders(a.stdout, raiders) }}, err
		})
	return cmd
}
