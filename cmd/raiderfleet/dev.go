package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/internal/devfleet"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

// leaveAfter is when a dev fleet that was started by another command leaves if nobody
// uses it.
const leaveAfter = time.Minute

// devFlags are the flags of `dev`.
type devFlags struct {
	memory     bool
	readyFile  string
	detached   bool
	stop       bool
	leaveAfter time.Duration
}

func (a *app) devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a whole fleet on this machine", Args: cobra.NoArgs,
		Long: `Run a whole fleet in one process: NATS with JetStream, a front door and a worker.
Its state stays in the state directory. Other commands find it there.`,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			if f.stop {
				return a.stopDev(cmd.Context(), cmd)
			}
			return a.runDev(cmd.Context(), cmd, f)
		}),
	}
	addServerFlags(cmd)
	cmd.Flags().BoolVar(&f.memory, "memory", false, "keep nothing: messages in memory, the rest in a temporary directory")
	cmd.Flags().StringVar(&f.readyFile, "ready-file", "", "write addresses and pid there, as JSON, when the fleet serves")
	cmd.Flags().BoolVar(&f.detached, "detached", false, "started by another command")
	cmd.Flags().DurationVar(&f.leaveAfter, "leave-after", 0, "end when nobody has used the fleet for so long; 0: never")
	cmd.Flags().BoolVar(&f.stop, "stop", false, "end the fleet that runs, also one that another command has started, and wait for that")
	for _, name := range []string{"detached", "leave-after"} {
		_ = cmd.Flags().MarkHidden(name) // they exist
	}
	return cmd
}

func (a *app) runDev(ctx context.Context, cmd *cobra.Command, f devFlags) error {
	if !f.detached {
		return a.serveDev(ctx, cmd, f, func() {})
	}
	announcer := devfleet.NewAnnouncer()
	err := a.serveDev(ctx, cmd, f, announcer.Ready)
	if err != nil {
		announcer.Failed(err)
	}
	if errors.Is(err, devfleet.ErrRunning) {
		// Two were started at once. The other one has the log file.
		return &exitError{code: exitFailed}
	}
	return err
}

func (a *app) serveDev(ctx context.Context, cmd *cobra.Command, f devFlags, ready func()) error {
	level := slog.LevelInfo
	if !f.detached {
		level = slog.LevelWarn // a person reads the summary
	}
	c, log, err := a.setup(cmd, level)
	if err != nil {
		return err
	}
	a.warnOfHall(c)
	if len(c.NATS.URLs) > 0 && !f.detached {
		log.Warn("the NATS servers of the configuration are not used: a dev fleet has its own")
	}
	o, err := devOptions(c, log)
	if err != nil {
		return err
	}
	o.Dir, o.Memory, o.LeaveAfter = devDir(c), f.memory, f.leaveAfter
	// A port that somebody asked for is that one or none.
	o.Listen, o.AnyPort = c.FrontDoor.Listen, c.Origin("frontdoor.listen").Source == config.SourceDefault
	if o.HTTP = c.FrontDoor.HTTP; o.HTTP == config.NoHTTP {
		o.HTTP = ""
	}
	o.AnyHTTPPort = c.Origin("frontdoor.http").Source == config.SourceDefault
	fleet, err := devfleet.New(o)
	if err != nil {
		return err
	}
	err = fleet.Run(ctx, func(s devfleet.Serving) error {
		if f.readyFile != "" {
			if err := devfleet.WriteReady(f.readyFile, s.Ready); err != nil {
				return err
			}
		}
		greet(a.stderr, s, f.memory)
		ready()
		return nil
	}, func(s devfleet.Serving) error {
		sayGoodbye(a.stderr, s.Worker.Lanes(), c.DrainTimeout)
		if f.readyFile == "" {
			return nil
		}
		return devfleet.RemoveReady(f.readyFile, s.Ready)
	})
	return portHint(err)
}

// stopDev ends the dev fleet, whoever has started it.
func (a *app) stopDev(ctx context.Context, cmd *cobra.Command) error {
	c, log, err := a.setup(cmd, slog.LevelWarn)
	if err != nil {
		return err
	}
	o := devfleet.JoinOptions{Dir: devDir(c), Name: "dev --stop", MaxBacklog: c.MaxBacklog, Logger: log}
	err = devfleet.Stop(ctx, o, func(pid int) {
		_, _ = fmt.Fprintf(a.stderr, "process %d is told to end; it waits for what runs, at most %v\n", pid, c.DrainTimeout)
	})
	if err == nil {
		_, _ = fmt.Fprintln(a.stderr, "it has ended")
	}
	return orCancelled(ctx, err)
}

// sayGoodbye says what the end of a fleet waits for.
func sayGoodbye(w io.Writer, lanes []subjects.LaneStatus, atMost time.Duration) {
	var runs []string
	for _, l := range lanes {
		if l.Prompt == "" {
			continue
		}
		name := string(l.Raider)
		if slot, ok := l.Lane.Slot(); ok {
			name = slot
		}
		runs = append(runs, fmt.Sprintf("  %s, session %s, %s", name, l.Session, l.State))
	}
	if len(runs) == 0 {
		_, _ = fmt.Fprintln(w, "the fleet ends: nothing runs")
		return
	}
	slices.Sort(runs)
	_, _ = fmt.Fprintf(w, "the fleet ends when what runs has ended, in %v at the latest (Ctrl-C again does not wait):\n%s\n", atMost, strings.Join(runs, "\n"))
}

// devOptions translates the configuration for a fleet in one process, without a state
// directory and a listener.
func devOptions(c *config.Config, log *slog.Logger) (devfleet.Options, error) {
	layout, err := layoutOf(c)
	if err != nil {
		return devfleet.Options{}, err
	}
	return devfleet.Options{
		Layout: layout, AckWait: c.AckWait, FrontDoor: frontDoorOf(c, log), Logger: log,
		Worker: func(dir string) (worker.Config, error) { return workerOf(c, dir, log) },
	}, nil
}

// greet says what listens where and what to type next.
func greet(w io.Writer, s devfleet.Serving, memory bool) {
	r, acp := s.Ready, s.Ready.ACP
	if s.Taken != nil {
		acp += " (" + s.Taken.Error() + ")"
	}
	web := "none"
	if r.HTTP != "" {
		web = fmt.Sprintf("http://%s/acp, ws://%s/acp", r.HTTP, r.HTTP)
	}
	if s.HTTPTaken != nil {
		web += " (" + s.HTTPTaken.Error() + ")"
	}
	names := make([]string, len(r.Raiders))
	for i, raider := range r.Raiders {
		names[i] = raider.Name
	}
	state := r.StateDir
	if memory {
		state = "nothing is kept (--memory)"
	}
	_, _ = fmt.Fprintf(w, `fleet %q is up, process %d
  ACP over TCP  %s
  over HTTP     %s
  NATS          %s, sign in with %s
  state         %s
  raiders       %s

Type next, in another terminal:
  raiderfleet prompt --dev "echo hello fleet"
  raiderfleet ps
Let an editor start:
  raiderfleet acp --dev
Stop with Ctrl-C, or with: raiderfleet dev --stop
`, r.Fleet, r.PID, acp, web, r.NATS, r.Credentials, state, strings.Join(names, ", "))
}
