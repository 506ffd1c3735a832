package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"raiderfleet/internal/acpclient"
	"raiderfleet/subjects"
)

// attachFlags are the flags of `attach`.
type attachFlags struct {
	lookFlags
	interactive, once, yes, refuse bool
}

func (a *app) attachCommand() *cobra.Command {
	var f attachFlags
	cmd := &cobra.Command{
		Use: "attach SESSION", Short: "Show a session's conversation, and go on with it", Args: cobra.ExactArgs(1),
		Long: `Show the conversation of a session so far, and then what happens in it, until Ctrl-C. With
--interactive each line that is typed becomes a prompt; Ctrl-C cancels the running one, or
leaves when none runs, and Ctrl-D leaves: what runs goes on. What a raider asks for is
asked on the terminal; without one it is left to others.`,
		RunE: a.action(func(cmd *cobra.Command, args []string) error { return a.runAttach(cmd, f, args[0]) }),
	}
	addLookFlags(cmd, &f.lookFlags)
	cmd.Flags().BoolVarP(&f.interactive, "interactive", "i", false, "send the lines of stdin as prompts")
	cmd.Flags().BoolVar(&f.once, "no-follow", false, "show the conversation so far and leave")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "allow what the agent asks for")
	cmd.Flags().BoolVar(&f.refuse, "no", false, "refuse what the agent asks for")
	cmd.MarkFlagsMutuallyExclusive("yes", "no")
	cmd.MarkFlagsMutuallyExclusive("interactive", "no-follow")
	return cmd
}

func (a *app) runAttach(cmd *cobra.Command, f attachFlags, id string) error {
	ctx := cmd.Context()
	k, err := a.openKept(cmd, f.dev)
	if err != nil {
		return err
	}
	err = a.attach(ctx, k, f, id)
	return errors.Join(err, k.close())
}

func (a *app) attach(ctx context.Context, k *keptDoor, f attachFlags, id string) error {
	m, err := k.Session(ctx, id)
	if err != nil {
		return err
	}
	if m.State != subjects.SessionOpen && !f.interactive {
		// Loading opens it again; who only looks must not change it.
		return fmt.Errorf("%s is %s; attach --interactive opens it again", id, m.State)
	}
	t := &talk{app: a, f: f, session: string(m.Session)}
	t.printer = &acpclient.Printer{Out: a.stdout, JSON: f.json, Users: true}
	if isTerminal(a.stderr) {
		t.printer.Notes = a.stderr
	}
	ask, done := t.permission()
	defer done()
	c := connectClient(ctx, k.serve(m.Principal), acpclient.Options{
		Name: "raiderfleet-attach", Version: buildVersion(),
		Update: t.printer.Update, Permission: ask, Logger: k.log,
	})
	defer c.end()
	if err := c.Initialize(ctx); err != nil {
		return orCancelled(ctx, err)
	}
	if err := c.LoadSession(ctx, string(m.Session), m.Cwd, m.MCPServers); err != nil {
		return orCancelled(ctx, peerText(err))
	}
	switch {
	case f.once:
	case f.interactive:
		err = t.converse(ctx, c)
	default:
		select {
		case <-ctx.Done():
		case <-c.ended:
			err = errors.New("the front door closed the connection")
		}
	}
	return errors.Join(err, t.printer.End(nil))
}

// permission is who decides what the agent asks for: the flags, else a person at the
// terminal, else others who are attached. done closes the terminal.
func (t *talk) permission() (ask func(context.Context, acpclient.PermissionRequest) string, done func()) {
	none := func() {}
	switch {
	case t.f.yes:
		return acpclient.Allow, none
	case t.f.refuse:
		return acpclient.Reject, none
	case t.f.interactive:
		// The same lines are prompts and answers: see talk.
		return t.answers(), none
	}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		return acpclient.NewTerminal(tty, tty).Permission, func() { _ = tty.Close() }
	}
	return leaveOpen, none
}
