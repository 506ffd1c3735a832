package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raiderfleet/config"
)

// keyAnnotation marks a flag that sets a key of the configuration.
const keyAnnotation = "raiderfleet_key"

// addKeyFlags adds the flags of the configuration's keys that want accepts.
func addKeyFlags(f *pflag.FlagSet, want func(path string) bool) {
	for _, k := range config.Keys() {
		if k.Flag == "" || !want(k.Path) || f.Lookup(k.Flag) != nil {
			continue
		}
		about := k.About
		if k.Default != "" {
			about += " (default: " + k.Default + ")"
		}
		f.String(k.Flag, "", about)
		flag := f.Lookup(k.Flag)
		flag.Annotations = map[string][]string{keyAnnotation: {k.Path}}
		if k.Default == "false" {
			flag.NoOptDefVal = "true"
		}
	}
}

// addServerFlags adds the flags of all keys but those of the sections in without, and
// those that are flags of every command.
func addServerFlags(cmd *cobra.Command, without ...string) {
	addKeyFlags(cmd.Flags(), func(path string) bool {
		switch path {
		case "nats.urls", "fleet", "state_dir", "nats.embedded":
			return false
		}
		for _, section := range without {
			if strings.HasPrefix(path, section+".") {
				return false
			}
		}
		return true
	})
}

// settings reads the configuration with the flags of cmd.
func (a *app) settings(cmd *cobra.Command) (*config.Config, error) {
	flags := map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if path, ok := f.Annotations[keyAnnotation]; ok {
			flags[path[0]] = f.Value.String()
		}
	})
	c, err := config.Load(config.Options{Path: a.configPath, Flags: flags})
	if err != nil {
		return nil, describeProblems(err)
	}
	for _, text := range c.Warnings() {
		_, _ = fmt.Fprintf(a.stderr, "raiderfleet: warning: %s\n", text)
	}
	return c, nil
}

// logger writes to stderr: stdout is the protocol's or the answer's.
func (a *app) logger(level slog.Level) (*slog.Logger, error) {
	person := level >= slog.LevelWarn && a.logFormat == "" // of a command that isn't a server
	if a.logLevel != "" {
		if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
			return nil, usage("--log-level: %q is none of debug, info, warn, error", a.logLevel)
		}
	}
	o := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "":
		if person {
			return slog.New(newPlainLog(a.stderr, level)), nil
		}
		return slog.New(slog.NewTextHandler(a.stderr, o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, o)), nil
	default:
		return nil, usage("--log-format: %q is neither text nor json", a.logFormat)
	}
}

// setup is settings and logger.
func (a *app) setup(cmd *cobra.Command, level slog.Level) (*config.Config, *slog.Logger, error) {
	log, err := a.logger(level)
	if err != nil {
		return nil, nil, err
	}
	c, err := a.settings(cmd)
	if err != nil {
		return nil, nil, err
	}
	return c, log, nil
}

// warnOfHall names the keys of a hall's file that mean nothing here. Servers do, `config
// check` has it in its description; scripts would get it with each command.
func (a *app) warnOfHall(c *config.Config) {
	if warning := c.Warning(); warning != "" {
		_, _ = fmt.Fprintf(a.stderr, "raiderfleet: warning: %s: %s\n", c.File, warning)
	}
}

// self is the path that starts this very binary again. On Linux that holds also when the
// file was replaced or removed meanwhile, as `go run` does with it at its end: a worker
// must not start shims of another version.
func self() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	return os.Executable()
}
