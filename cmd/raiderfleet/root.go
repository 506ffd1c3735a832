package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"raiderfleet/config"
)

// The exit codes, beside 128 + the signal's number.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitUnsure = 3
	exitCancel = 130
)

// exitError ends the process with a code. Without err nothing is printed.
type exitError struct {
	code int
	err  error
}

// Error is empty when there is nothing to print.
func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

// app is what the commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// started: the command line was understood. Errors before that are about its use.
	started bool

	configPath string
	logLevel   string
	logFormat  string
}

// execute runs the command that args name and returns the exit code.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root() //nolint:contextcheck // each command gets the context when it runs
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case !a.started:
		code = exitUsage
	}
	if text := err.Error(); text != "" {
		if code == exitUsage {
			text += "\nTry: " + cmd.CommandPath() + " --help"
		}
		_, _ = fmt.Fprintf(stderr, "raiderfleet: %s\n", text)
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "raiderfleet",
		Short: "Run AI agents on many machines behind one ACP front door",
		Long: `Raiderfleet runs AI agents (raiders) on many machines behind a front door that
speaks the Agent Client Protocol. It needs nothing but itself: NATS is built in.

  raiderfleet prompt --dev "echo hello fleet"    one prompt, a fleet for it included
  raiderfleet dev                                a fleet on this machine
  raiderfleet acp                                what an editor starts

Exit codes: 0 done; 1 failed, the reason is on stderr; 2 the command line is wrong;
130 cancelled (Ctrl-C); 128 + n ended by signal n without waiting.`,
		SilenceErrors: true, SilenceUsage: true, Version: versionText(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	f := root.PersistentFlags()
	f.StringVar(&a.configPath, "config", "", "configuration file (default: ./fleet.yml, ./.raider-hall.yml, then the user's)")
	f.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error (default: info for servers, warn for others)")
	f.StringVar(&a.logFormat, "log-format", "", "text or json (default: text for servers, lines for people elsewhere)")
	addKeyFlags(f, func(path string) bool { return path == "nats.urls" || path == "fleet" || path == "state_dir" })
	root.AddCommand(
		a.promptCommand(), a.acpCommand(), a.devCommand(),
		a.frontDoorCommand(), a.workerCommand(), a.natsCommand(),
		a.psCommand(), a.queueCommand(), a.workersCommand(), a.cancelCommand(),
		a.raidersCommand(), a.sessionsCommand(), a.sessionCommand(), a.asksCommand(), a.answerCommand(),
		a.eventsCommand(), a.logsCommand(), a.attachCommand(), a.spawnCommand(), a.waitCommand(),
		a.initCommand(), a.configCommand(), a.versionCommand(),
	)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	explainArgs(root)
	return root
}

// flagError says what to do about a text that looks like a flag.
func flagError(cmd *cobra.Command, err error) error {
	if strings.Contains(cmd.Use, "TEXT") && strings.HasPrefix(err.Error(), "unknown") {
		return fmt.Errorf("%w\nA text that begins with '-' goes behind --", err)
	}
	return err
}

// explainArgs makes every command say what it takes when it got something else.
func explainArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil || cmd.HasSubCommands() {
				return err
			}
			_, want, _ := strings.Cut(cmd.Use, " ")
			want = strings.TrimSpace(strings.TrimPrefix(want, "[flags]"))
			got := fmt.Sprintf("%d arguments", len(args))
			if len(args) == 1 {
				got = "one argument"
			}
			if want == "" {
				want = "none"
			}
			return fmt.Errorf("%s got %s, it takes %s", cmd.CommandPath(), got, want)
		}
	}
	for _, c := range cmd.Commands() {
		explainArgs(c)
	}
}

// action wraps the body of a command: its errors are not about the use of the command line.
func (a *app) action(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd, args)
	}
}

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// describeProblems puts the problems of a configuration under a line that says so.
func describeProblems(err error) error {
	if p, ok := errors.AsType[*config.Problems](err); ok {
		return errors.New("the configuration is wrong:\n  " + strings.ReplaceAll(p.Error(), "\n", "\n  "))
	}
	return err
}
