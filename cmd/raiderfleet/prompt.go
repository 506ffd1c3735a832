package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/rpc"
)

// promptFlags are the flags of `prompt`.
type promptFlags struct {
	raider, cwd, connect   string
	dev, json, yes, refuse bool
	keep                   bool
}

func (a *app) promptCommand() *cobra.Command {
	var f promptFlags
	cmd := &cobra.Command{
		Use: "prompt [flags] TEXT|-", Short: "Run one prompt and show the answer",
		Long: `Run one prompt in a session of its own and show the answer as it comes. '-' reads the
prompt from stdin. Ctrl-C cancels it; a second Ctrl-C does not wait for the answer.

Exit codes:
  0    the turn ended as it should
  1    it failed, or there is no fleet; the reason is on stderr
  2    the command line is wrong
  130  it was cancelled, with Ctrl-C or by someone else
  143  it was told to end (SIGTERM) a second time`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error { return a.runPrompt(cmd.Context(), cmd, f, args[0]) }),
	}
	cmd.Flags().StringVar(&f.raider, "raider", "", "raider or slot (default: the first)")
	cmd.Flags().StringVar(&f.cwd, "cwd", "", "directory of the session (default: the current one)")
	cmd.Flags().BoolVar(&f.dev, "dev", false, "use the dev fleet of this machine, or one that lives as long as the prompt")
	cmd.Flags().StringVar(&f.connect, "connect", "", "use the front door at this host:port")
	cmd.Flags().BoolVar(&f.json, "json", false, "print each session update, and at last the result, as a line of JSON")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "leave the session open, for attach or spawn --session")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "allow what the agent asks for")
	cmd.Flags().BoolVar(&f.refuse, "no", false, "refuse what the agent asks for")
	cmd.MarkFlagsMutuallyExclusive("yes", "no")
	cmd.MarkFlagsMutuallyExclusive("dev", "connect")
	return cmd
}

func (a *app) runPrompt(ctx context.Context, cmd *cobra.Command, f promptFlags, text string) error {
	c, log, err := a.setup(cmd, slog.LevelWarn)
	if err != nil {
		return err
	}
	fromStdin := text == "-"
	if fromStdin {
		body, err := io.ReadAll(a.stdin)
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		text = string(body)
	}
	if strings.TrimSpace(text) == "" {
		return usage("the prompt is empty")
	}
	cwd, err := filepath.Abs(f.cwd)
	if err != nil {
		return fmt.Errorf("--cwd: %w", err)
	}
	door, err := a.openDoor(ctx, cmd, c, f, log)
	if err != nil {
		return orCancelled(ctx, err)
	}
	printer := &acpclient.Printer{Out: a.stdout, JSON: f.json}
	if isTerminal(a.stderr) {
		printer.Notes = a.stderr
	}
	ask, done := a.permission(f, fromStdin)
	w := &watch{printer: printer, raider: cmp.Or(f.raider, door.raider)}
	stop := w.cancelling(ctx)
	result, err := acpclient.Turn{Cwd: cwd, Raider: f.raider, Text: text, Close: !f.keep, Sent: w.sent}.Do(ctx, door.conn, acpclient.Options{
		Name: "raiderfleet-prompt", Version: buildVersion(),
		Update: printer.Update, Permission: printer.Asking(ask), Logger: log,
	})
	stop()
	done()
	return a.promptEnd(ctx, printer, result, w.lost(err), door.close())
}

// promptEnd shows how the turn ended; its error is the exit code.
func (a *app) promptEnd(ctx context.Context, p *acpclient.Printer, r acpclient.Result, err, closeErr error) error {
	if err != nil {
		var line json.RawMessage
		if fault, ok := errors.AsType[*rpc.Error](err); ok {
			line, _ = json.Marshal(map[string]*rpc.Error{"error": fault}) // raw data of the peer is JSON
			err = errors.New(fault.Message)
		}
		return errors.Join(orCancelled(ctx, err), p.End(line))
	}
	if err := p.End(r.Raw); err != nil {
		return fmt.Errorf("show the answer: %w", err)
	}
	switch r.StopReason {
	case acpclient.StopEndTurn:
		return closeErr
	case acpclient.StopCancelled:
		if ctx.Err() == nil {
			return &exitError{exitCancel, errors.New(
				"the prompt was cancelled by someone else: with raiderfleet cancel, by another client of its session, or by the agent itself")}
		}
		return &exitError{code: exitCancel}
	default:
		return &exitError{exitFailed, fmt.Errorf("the agent stopped: %s", r.StopReason)}
	}
}

// orCancelled is the exit code of a Ctrl-C when that is why err came.
func orCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &exitError{code: exitCancel}
	}
	return err
}

// permission is who decides what the agent asks for: the flags, else a person at the
// terminal, else nobody. done closes the terminal.
func (a *app) permission(f promptFlags, stdinUsed bool) (ask func(context.Context, acpclient.PermissionRequest) string, done func()) {
	none := func() {}
	switch {
	case f.yes:
		return acpclient.Allow, none
	case f.refuse:
		return acpclient.Reject, none
	}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		return acpclient.NewTerminal(tty, tty).Permission, func() { _ = tty.Close() }
	}
	if in, ok := a.stdin.(*os.File); ok && !stdinUsed && isTerminal(in) {
		return acpclient.NewTerminal(in, a.stderr).Permission, none
	}
	return func(ctx context.Context, r acpclient.PermissionRequest) string {
		_, _ = fmt.Fprintf(a.stderr, "raiderfleet: refused, as nobody is here who could be asked: %s (--yes allows)\n", acpclient.Plain(r.ToolCall.Title))
		return acpclient.Reject(ctx, r)
	}, none
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
