package main

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"raiderfleet/config"
	"raiderfleet/frontdoor"
	"raiderfleet/internal/devfleet"
)

// detachedDev is the command of a dev fleet with our configuration that outlives us.
func (a *app) detachedDev(cmd *cobra.Command, c *config.Config) (devfleet.Detached, error) {
	exe, err := self()
	if err != nil {
		return devfleet.Detached{}, err
	}
	after := leaveAfter.String()
	if flag := cmd.Flag("leave-after"); flag != nil {
		after = flag.Value.String()
	}
	argv := []string{
		exe, "dev", "--detached", "--leave-after", after,
		"--state-dir", c.StateDir, "--fleet", c.Fleet, "--log-format", cmp.Or(a.logFormat, "text"),
	}
	if c.File != "" {
		argv = append(argv, "--config", c.File)
	}
	if a.logLevel != "" {
		argv = append(argv, "--log-level", a.logLevel)
	}
	return devfleet.Detached{Command: argv}, nil
}

// joinOrStart joins the local dev fleet, which is started if it isn't there.
func (a *app) joinOrStart(ctx context.Context, cmd *cobra.Command, c *config.Config, log *slog.Logger) (*devfleet.Joined, error) {
	dev, err := a.detachedDev(cmd, c)
	if err != nil {
		return nil, err
	}
	return devfleet.JoinOrStart(ctx, devfleet.JoinOptions{Dir: devDir(c), Name: cmd.Name(), MaxBacklog: c.MaxBacklog, Logger: log}, dev)
}

// joinedFrontDoor translates the configuration for a front door of the dev fleet. The
// fleet's raiders are those of its own configuration.
func (a *app) joinedFrontDoor(c *config.Config, ready devfleet.Ready, log *slog.Logger) frontdoor.Config {
	own := frontDoorOf(c, log)
	fc := withRaidersOf(own, ready)
	if a.configPath == "" {
		return fc
	}
	served := func(r frontdoor.Raider) bool {
		return slices.ContainsFunc(fc.Raiders, func(o frontdoor.Raider) bool { return o.Name == r.Name })
	}
	var missing []string
	for _, r := range own.Raiders {
		if !served(r) {
			missing = append(missing, string(r.Name))
		}
	}
	if len(missing) > 0 {
		log.Warn("the running dev fleet was started with another configuration and does not serve all raiders of this one",
			"missing", strings.Join(missing, ", "), "config", c.File, "pid", ready.PID)
	}
	return fc
}
