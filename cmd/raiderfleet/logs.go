package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"raiderfleet/internal/admin"
)

func (a *app) logsCommand() *cobra.Command {
	var f lookFlags
	var follow bool
	cmd := &cobra.Command{
		Use: "logs PROMPT|SESSION", Short: "Show what raiders wrote to stderr", Args: cobra.ExactArgs(1),
		Long: `Show what raiders wrote to stderr, from whichever hosts and in the order in which it was
stored: of the run of a prompt, or of all runs of a session, ended ones too. With -f, go on
until the prompt, or all that the session has in the queue, has ended.`,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		l, err := a.openLook(cmd, f.dev)
		if err != nil {
			return err
		}
		defer l.close()
		err = l.Logs(cmd.Context(), args[0], follow, func(line admin.LogLine) error {
			if f.json {
				return writeJSON(a.stdout, line)
			}
			_, err := fmt.Fprintf(a.stdout, "%s\n", line.Line)
			return err
		})
		return orCancelled(cmd.Context(), err)
	})
	addLookFlags(cmd, &f)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	return cmd
}
