package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/devfleet"
)

// natsFlags are the flags of `nats`.
type natsFlags struct{ listen, store, credentials, readyFile string }

func (a *app) natsCommand() *cobra.Command {
	var f natsFlags
	cmd := &cobra.Command{
		Use: "nats", Short: "Run a NATS server with JetStream", Args: cobra.NoArgs,
		Long: `Run a NATS server with JetStream. Clients must sign in when a user and password are
given: by ` + userVariable + ` and ` + passwordVariable + `, or with --credentials by a JSON file
{"user": "…", "password": "…"}. The other commands take the same variables.`,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error { return a.runNATS(cmd.Context(), cmd, f) }),
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:4222", "host:port for NATS clients; port 0 takes a free one")
	cmd.Flags().StringVar(&f.store, "store", "", "directory of JetStream (default: nats in the state directory)")
	cmd.Flags().StringVar(&f.credentials, "credentials", "", "JSON file with the user and password that clients must give")
	cmd.Flags().StringVar(&f.readyFile, "ready-file", "", "write address and pid there, as JSON, when the server serves")
	return cmd
}

func (a *app) runNATS(ctx context.Context, cmd *cobra.Command, f natsFlags) error {
	c, log, err := a.setup(cmd, slog.LevelInfo)
	if err != nil {
		return err
	}
	a.warnOfHall(c)
	host, portText, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usage("--listen: must be host:port, not %q", f.listen)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return usage("--listen: %q is not a port", portText)
	}
	o := bus.ServerOptions{
		Host: host, Port: int(port), StoreDir: f.store, Logger: log,
		User: os.Getenv(userVariable), Password: os.Getenv(passwordVariable),
	}
	if o.Port == 0 {
		o.Port = -1 // what the server calls a free one
	}
	if o.StoreDir == "" {
		o.StoreDir = filepath.Join(c.StateDir, "nats")
	}
	if f.credentials != "" {
		credentials, err := devfleet.ReadCredentials(f.credentials)
		if err != nil {
			return err
		}
		o.User, o.Password = credentials.User, credentials.Password
	}
	if ip := net.ParseIP(host); o.User == "" && (ip == nil || !ip.IsLoopback()) && host != "localhost" {
		log.Warn("everybody who reaches this port may use NATS: no user and password are given", "listen", f.listen)
	}
	s, err := bus.StartServer(o)
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	kept, end := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { bus.KeepStore(kept, s, o) })
	defer func() { end(); keeping.Wait() }()
	log.Info("NATS serves", "url", s.ClientURL(), "store", o.StoreDir, "bytes_it_may_use", s.JetStreamConfig().MaxStore)
	return untilDone(ctx, f.readyFile, devfleet.Ready{PID: os.Getpid(), NATS: s.ClientURL(), Credentials: f.credentials})
}
