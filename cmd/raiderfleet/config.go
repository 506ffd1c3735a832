package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"raiderfleet/config"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Look at the configuration", Args: cobra.NoArgs,
		// Without this an unknown subcommand would be answered with help and success.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	check := &cobra.Command{
		Use: "check", Short: "Say what the configuration means, or all that is wrong with it", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error { return a.runConfigCheck(cmd) }),
	}
	addServerFlags(check)
	convert := &cobra.Command{
		Use: "convert FILE", Short: "Make a fleet.yml of a hall's .raider-hall.yml", Args: cobra.ExactArgs(1),
		Long: `Write a fleet.yml that means the same as a hall's file to stdout, in its order, with
comments on what was left out. '-' reads stdin.`,
		RunE: a.action(func(_ *cobra.Command, args []string) error { return a.runConfigConvert(args[0]) }),
	}
	cmd.AddCommand(check, convert)
	return cmd
}

func (a *app) runConfigCheck(cmd *cobra.Command) error {
	if _, err := a.logger(slog.LevelWarn); err != nil {
		return err
	}
	c, err := a.settings(cmd) // not setup: what it warns of is in the description
	if err != nil {
		return err
	}
	config.Describe(a.stdout, c)
	return nil
}

func (a *app) runConfigConvert(name string) error {
	if base := filepath.Base(name); base == "fleet.yml" || base == "fleet.yaml" {
		// All of its keys are a hall's, too, and would mean something else.
		return fmt.Errorf("%s is a fleet's file already: convert makes one of a hall's .raider-hall.yml", name)
	}
	var data []byte
	var err error
	if name == "-" {
		data, err = io.ReadAll(a.stdin)
	} else {
		data, err = os.ReadFile(name) //nolint:gosec // the user names the file
	}
	if err != nil {
		return fmt.Errorf("read the hall's file: %w", err)
	}
	return describeProblems(config.Convert(a.stdout, name, data))
}
