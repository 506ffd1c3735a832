package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// spawnFlags are the flags of `spawn`.
type spawnFlags struct {
	lookFlags
	raider, cwd, session string
	fresh                bool
}

// idGrace is how long a prompt's id may come after its answer.
const idGrace = time.Second

// spawned is what `spawn` prints.
type spawned struct {
	Prompt  subjects.PromptID  `json:"prompt"`
	Session subjects.SessionID `json:"session"`
	Raider  subjects.Raider    `json:"raider"`
}

func (a *app) spawnCommand() *cobra.Command {
	var f spawnFlags
	cmd := &cobra.Command{
		Use: "spawn [flags] TEXT|-", Short: "Send a prompt and don't wait for it", Args: cobra.ExactArgs(1),
		Long: `Send a prompt and leave when the fleet has accepted it. It prints the ids of the prompt and
of its session; logs, attach, wait, cancel and queue take them. The run goes on, and the
session stays. What is sent to a slot goes on in the session that an earlier spawn to it in
the same directory has begun; with --new it begins another one. '-' reads the prompt from stdin.`,
		RunE: a.action(func(cmd *cobra.Command, args []string) error { return a.runSpawn(cmd, f, args[0]) }),
	}
	addLookFlags(cmd, &f.lookFlags)
	cmd.Flags().StringVar(&f.raider, "raider", "", "raider or slot (default: the first)")
	cmd.Flags().StringVar(&f.cwd, "cwd", "", "directory of the session (default: the current one)")
	cmd.Flags().StringVar(&f.session, "session", "", "an open session that the prompt goes to (default: a new one)")
	cmd.Flags().BoolVar(&f.fresh, "new", false, "begin a new session, on a slot too")
	cmd.MarkFlagsMutuallyExclusive("session", "new")
	cmd.MarkFlagsMutuallyExclusive("session", "raider")
	cmd.MarkFlagsMutuallyExclusive("session", "cwd")
	return cmd
}

// promptText is the text of an argument, or of stdin for '-'.
func (a *app) promptText(arg string) (string, error) {
	if arg == "-" {
		body, err := io.ReadAll(a.stdin)
		if err != nil {
			return "", fmt.Errorf("read the prompt: %w", err)
		}
		arg = string(body)
	}
	if strings.TrimSpace(arg) == "" {
		return "", usage("the prompt is empty")
	}
	return arg, nil
}

func (a *app) runSpawn(cmd *cobra.Command, f spawnFlags, arg string) error {
	text, err := a.promptText(arg)
	if err != nil {
		return err
	}
	cwd, err := filepath.Abs(f.cwd)
	if err != nil {
		return fmt.Errorf("--cwd: %w", err)
	}
	k, err := a.openKept(cmd, f.dev)
	if err != nil {
		return err
	}
	done, err := k.spawn(cmd.Context(), f, cwd, text)
	if err := errors.Join(orCancelled(cmd.Context(), err), k.close()); err != nil {
		return err
	}
	if f.json {
		return writeJSON(a.stdout, done)
	}
	_, err = fmt.Fprintf(a.stdout, "%s %s\n", done.Prompt, done.Session)
	return err
}

// spawn sends the prompt and returns when it has been accepted.
func (k *keptDoor) spawn(ctx context.Context, f spawnFlags, cwd, text string) (spawned, error) {
	principal := subjects.LocalPrincipal
	_, slot := subjects.IsSlot(f.raider)
	session := ""
	switch {
	case f.session != "":
		m, err := k.Session(ctx, f.session)
		if err != nil {
			return spawned{}, err
		}
		principal, session = m.Principal, string(m.Session)
	case slot && !f.fresh:
		m, err := k.SlotSession(ctx, principal, f.raider, cwd)
		if err != nil {
			return spawned{}, err
		}
		if m.Session != "" {
			session = string(m.Session)
		}
	}
	accepted, err := k.Acceptance(k.door.Instance())
	if err != nil {
		return spawned{}, err
	}
	defer accepted.Close()
	c := connectClient(ctx, k.serve(principal), acpclient.Options{
		Name: "raiderfleet-spawn", Version: buildVersion(), Permission: leaveOpen, Logger: k.log,
	})
	defer c.end()
	if err := c.Initialize(ctx); err != nil {
		return spawned{}, err
	}
	if session == "" {
		open := c.NewSession
		if slot {
			open = c.NewSlotSession
		}
		if session, err = open(ctx, cwd, f.raider); err != nil {
			return spawned{}, peerText(err)
		}
	}
	waiting, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Ended by the end of the connection: that of a context would withdraw the prompt.
		_, err := c.Prompt(context.WithoutCancel(ctx), session, text)
		if err == nil {
			err = errors.New("the prompt has run, but its id was not heard of")
		}
		// It may have been accepted and have ended at once: its id is on the way.
		timer := time.NewTimer(idGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			stop(peerText(err))
		case <-waiting.Done():
		}
	}()
	defer func() { c.end(); stop(nil); <-ended }()
	e, err := accepted.Wait(waiting)
	if err != nil {
		if cause := context.Cause(waiting); cause != nil && ctx.Err() == nil {
			err = cause
		}
		return spawned{}, err
	}
	return spawned{Prompt: e.Prompt, Session: e.Session, Raider: e.Raider}, nil
}

// peerText is the text of an agent's error alone.
func peerText(err error) error {
	if fault, ok := errors.AsType[*rpc.Error](err); ok {
		return errors.New(fault.Message)
	}
	return err
}

// leaveOpen answers no permission request: others may.
func leaveOpen(ctx context.Context, _ acpclient.PermissionRequest) string {
	<-ctx.Done()
	return ""
}
