package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/admin"
	"raiderfleet/subjects"
)

func (a *app) sessionsCommand() *cobra.Command {
	var all bool
	cmd := a.inspect("sessions", "List the sessions, where they are and what they do", cobra.NoArgs,
		func(ctx context.Context, f *admin.Fleet, _ []string) (answer, error) {
			sessions, silent, err := f.Sessions(ctx, all)
			for _, w := range silent {
				_, _ = fmt.Fprintf(a.stderr, "raiderfleet: worker %s does not answer\n", w)
			}
			return answer{sessions, func() error { return admin.WriteSessions(a.stdout, sessions, time.Now()) }}, err
		})
	cmd.Flags().BoolVar(&all, "all", false, "closed sessions too")
	return cmd
}

func (a *app) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "session", Short: "Act on a session", Args: cobra.NoArgs,
		// Without this an unknown subcommand would be answered with help and success.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.sessionCloseCommand(), a.inspect("reset SESSION", "Forget the agent's session: the next prompt starts without the earlier conversation", cobra.ExactArgs(1),
		func(ctx context.Context, f *admin.Fleet, args []string) (answer, error) {
			done, err := f.ResetSession(ctx, args[0])
			return answer{done, func() error { return admin.WriteReset(a.stdout, done) }}, err
		}))
	return cmd
}

func (a *app) sessionCloseCommand() *cobra.Command {
	var f lookFlags
	cmd := &cobra.Command{
		Use: "close SESSION", Short: "Close a session: what runs and waits in it is cancelled, its raider ends", Args: cobra.ExactArgs(1),
		Long: `Close a session. What runs and waits in it is cancelled and its raider's process ends; then the
command returns. The conversation stays: a client that loads the session opens it again.`,
		RunE: a.action(func(cmd *cobra.Command, args []string) error { return a.runSessionClose(cmd, f, args[0]) }),
	}
	addLookFlags(cmd, &f)
	return cmd
}

// sessionClosed is what `session close` prints.
type sessionClosed struct {
	Session subjects.SessionID `json:"session"`
}

func (a *app) runSessionClose(cmd *cobra.Command, f lookFlags, id string) error {
	k, err := a.openKept(cmd, f.dev)
	if err != nil {
		return err
	}
	done, err := k.closeSession(cmd.Context(), id)
	if err := errors.Join(orCancelled(cmd.Context(), err), k.close()); err != nil {
		return err
	}
	if f.json {
		return writeJSON(a.stdout, done)
	}
	_, err = fmt.Fprintf(a.stdout, "%s closed\n", done.Session)
	return err
}

// closeSession closes a session, whosever it is, and waits until nothing of it runs.
func (k *keptDoor) closeSession(ctx context.Context, id string) (sessionClosed, error) {
	m, err := k.Session(ctx, id)
	if err != nil {
		return sessionClosed{}, err
	}
	c := connectClient(ctx, k.serve(m.Principal), acpclient.Options{
		Name: "raiderfleet-session-close", Version: buildVersion(), Permission: leaveOpen, Logger: k.log,
	})
	defer c.end()
	if err := c.Initialize(ctx); err != nil {
		return sessionClosed{}, err
	}
	if err := c.CloseSession(ctx, string(m.Session)); err != nil {
		return sessionClosed{}, peerText(err)
	}
	return sessionClosed{m.Session}, nil
}
