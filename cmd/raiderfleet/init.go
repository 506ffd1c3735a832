package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"raiderfleet/config"
)

func (a *app) initCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "init [PATH]", Short: "Write a commented fleet.yml to begin with", Args: cobra.MaximumNArgs(1),
		Long: `Write a fleet.yml with every key, commented out, and one raider that needs no model.
PATH is the file, or a directory for it. Default: fleet.yml in the working directory.`,
		RunE: a.action(func(_ *cobra.Command, args []string) error {
			path := "fleet.yml"
			if len(args) > 0 {
				path = args[0]
			}
			return a.runInit(path, force)
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite a file that is there")
	return cmd
}

func (a *app) runInit(path string, force bool) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "fleet.yml")
	}
	// Without force the file is made by this very call, or not touched.
	mode := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if force {
		mode = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	file, err := os.OpenFile(path, mode, 0o600) //nolint:gosec // the user names the file
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; --force overwrites it", path)
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = file.WriteString(config.Template())
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = fmt.Fprintf(a.stdout, "%s is written. What it means: raiderfleet config check --config %s\n", path, path)
	return err
}
