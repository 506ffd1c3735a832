package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/config"
	"raiderfleet/internal/bus"
	"raiderfleet/internal/devfleet"
	"raiderfleet/internal/port"
)

// The variables that sign in to NATS, at the server and at its clients.
const (
	userVariable     = "RAIDERFLEET_NATS_USER"
	passwordVariable = "RAIDERFLEET_NATS_PASSWORD"
)

// devDir is where the local dev fleet keeps its state.
func devDir(c *config.Config) string { return filepath.Join(c.StateDir, "dev") }

// busOptions translates the configuration for a connection.
func busOptions(c *config.Config, name string, log *slog.Logger) (bus.Options, error) {
	layout, err := layoutOf(c)
	if err != nil {
		return bus.Options{}, err
	}
	o := bus.Options{
		URLs: c.NATS.URLs, Name: name, CredentialsFile: c.NATS.CredentialsFile,
		User: os.Getenv(userVariable), Password: os.Getenv(passwordVariable),
		Layout: layout, AckWait: c.AckWait, Logger: log,
	}
	if o.TLS, err = tlsOf(c.NATS.TLS); err != nil {
		return bus.Options{}, err
	}
	return o, nil
}

// tlsOf reads the PEM files; nil when none is configured.
func tlsOf(t config.TLS) (*tls.Config, error) {
	if t == (config.TLS{}) {
		return nil, nil //nolint:nilnil // none is configured
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("nats.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("nats.tls.ca: no certificate in %s", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("nats.tls.cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// serverBus connects a server of the fleet and declares the streams. It tries until ctx
// ends: the parts of a fleet start in any order.
func serverBus(ctx context.Context, c *config.Config, name string, log *slog.Logger) (*bus.Bus, error) {
	if len(c.NATS.URLs) == 0 {
		j, err := devfleet.Join(ctx, devfleet.JoinOptions{Dir: devDir(c), Name: name, MaxBacklog: c.MaxBacklog, Logger: log})
		if err != nil {
			return nil, noFleet(err)
		}
		log.Info("no NATS is configured: joined the running dev fleet", "state_dir", j.Ready.StateDir)
		return j.Bus, nil
	}
	o, err := busOptions(c, name, log)
	if err != nil {
		return nil, err
	}
	const slowest = 2 * time.Second
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, slowest) {
		b, err := connectAndDeclare(ctx, o)
		if err == nil {
			return b, nil
		}
		if ctx.Err() != nil || errors.Is(err, nats.ErrAuthorization) || errors.Is(err, bus.ErrNoSpace) {
			return nil, err
		}
		log.Warn("NATS is not there yet", "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

func connectAndDeclare(ctx context.Context, o bus.Options) (*bus.Bus, error) {
	b, err := bus.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	bound, cancel := b.Bound(ctx, b.AckWait()/2)
	defer cancel()
	if err := b.Declare(bound); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// clientBus connects a command that is gone soon: to the NATS that is configured, else,
// or with dev, to the running dev fleet. It changes no declaration; a fleet that is not
// there is an error. A dev fleet that is ending is told on stderr.
func (a *app) clientBus(ctx context.Context, c *config.Config, dev bool, name string, log *slog.Logger) (*bus.Bus, error) {
	if dev || len(c.NATS.URLs) == 0 {
		j, err := devfleet.Join(ctx, devfleet.JoinOptions{Dir: devDir(c), Name: name, MaxBacklog: c.MaxBacklog, Leaving: true, Logger: log})
		if err != nil {
			return nil, noFleet(err)
		}
		if j.Leaving {
			_, _ = fmt.Fprintf(a.stderr, "raiderfleet: the dev fleet, process %d, is ending: it waits for what runs and starts nothing new\n", j.Ready.PID)
		}
		return j.Bus, nil
	}
	return configuredBus(ctx, c, name, log)
}

func configuredBus(ctx context.Context, c *config.Config, name string, log *slog.Logger) (*bus.Bus, error) {
	o, err := busOptions(c, name, log)
	if err != nil {
		return nil, err
	}
	b, err := bus.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	// The declaration is its servers' matter: ours could have fewer replicas.
	if _, err := b.LastSeq(ctx, b.Fleet().BacklogStream()); err != nil {
		b.Close()
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, fmt.Errorf("no fleet %q on this NATS: start a worker or a front door on it first", c.Fleet)
		}
		return nil, err
	}
	return b, nil
}

// portHint adds to the error of a port that is taken what to do about it.
func portHint(err error) error {
	if _, ok := errors.AsType[*port.TakenError](err); ok {
		return fmt.Errorf("%w\nStop that process, or give another address with --listen, such as 127.0.0.1:0 for any free port", err)
	}
	return err
}

func noFleet(err error) error {
	if errors.Is(err, devfleet.ErrNotRunning) {
		return fmt.Errorf("%w; start one with: raiderfleet dev; or name a fleet's NATS with --nats, RAIDERFLEET_NATS_URLS or nats.urls", err)
	}
	return err
}
