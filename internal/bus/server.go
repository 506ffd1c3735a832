package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ServerOptions configure an embedded NATS server.
type ServerOptions struct {
	// Name of the server. Default "raiderfleet".
	Name string
	// Host and Port to listen on. Host default 127.0.0.1; Port -1 takes a free one.
	Host string
	Port int
	// StoreDir is where JetStream keeps its files.
	StoreDir string
	// User and Password that every client must give; none when empty.
	User, Password string
	// Cluster is set for a node of several.
	Cluster *server.ClusterOpts
	Routes  []string
	Logger  *slog.Logger
}

// StartServer starts a NATS server with JetStream in this process. It blocks until
// clients are served, at most 10 s. It installs no signal handlers.
func StartServer(o ServerOptions) (*server.Server, error) {
	if o.Name == "" {
		o.Name = "raiderfleet"
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	opts := &server.Options{
		ServerName: o.Name, Host: o.Host, Port: o.Port,
		JetStream: true, StoreDir: o.StoreDir,
		Username: o.User, Password: o.Password,
		NoSigs: true, NoLog: o.Logger == nil,
		// A client that went without a word is noticed by its pings, not ours.
		PingInterval:  30 * time.Second,
		WriteDeadline: 10 * time.Second,
	}
	if o.Cluster != nil {
		opts.Cluster = *o.Cluster
		opts.Routes = server.RoutesFromStr(strings.Join(o.Routes, ","))
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	if o.Logger != nil {
		s.SetLoggerV2(serverLog{o.Logger}, false, false, false)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, errors.New("NATS server: not ready for connections within 10 s")
	}
	if ok := s.JetStreamEnabled(); !ok && o.Cluster == nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, errors.New("NATS server: JetStream is not enabled")
	}
	return s, nil
}

// serverLog carries the server's log lines to slog. Notices are debug: a server that
// is part of our process has nothing to say as long as it works.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug("NATS server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Plaintext passwords detected") {
		return // ours are in the process's memory only, as plain as they must be
	}
	l.log.Warn("NATS server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Errorf(format string, v ...any) {
	l.log.Error("NATS server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Fatalf(format string, v ...any) {
	l.log.Error("NATS server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Debugf(string, ...any) {}
func (l serverLog) Tracef(string, ...any) {}
