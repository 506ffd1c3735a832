package devfleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// ErrNotRunning says that no fleet runs on the state directory.
var ErrNotRunning = errors.New("no dev fleet is running")

// JoinOptions say how to join a fleet.
type JoinOptions struct {
	// Dir is the state directory.
	Dir string
	// Name shows in the server's connection list.
	Name string
	// MaxBacklog is the caller's, for its layout.
	MaxBacklog int
	// Leaving joins a fleet that is ending, too: to look at what it waits for.
	Leaving bool
	Logger  *slog.Logger
}

// Joined is a connection to a running fleet.
type Joined struct {
	Ready Ready
	Bus   *bus.Bus
	// Leaving: the fleet is ending and waits for its runs. Only if that was asked for.
	Leaving bool
}

// Join connects to the fleet that runs on the state directory. ErrNotRunning when there
// is none, also when it is ending, or there is only what a killed one has left.
func Join(ctx context.Context, o JoinOptions) (*Joined, error) {
	path := filepath.Join(o.Dir, readyName)
	r, err := ReadReady(path)
	if errors.Is(err, fs.ErrNotExist) {
		return joinLeaving(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	b, err := connect(ctx, r, o)
	if err != nil {
		return nil, err
	}
	// Only now: the fleet takes the file away before it looks for connections and leaves.
	if now, err := ReadReady(path); err != nil || now.ID != r.ID {
		b.Close()
		return nil, fmt.Errorf("%w: it is leaving", ErrNotRunning)
	}
	return &Joined{Ready: r, Bus: b}, nil
}

// joinLeaving joins a fleet that is ending, or says that there is one.
func joinLeaving(ctx context.Context, o JoinOptions) (*Joined, error) {
	r, err := ReadReady(filepath.Join(o.Dir, leavingName))
	if err != nil || syscall.Kill(r.PID, 0) != nil {
		return nil, ErrNotRunning // none, or what a killed one has left
	}
	if !o.Leaving {
		return nil, fmt.Errorf("%w: process %d is ending, it waits for its runs", ErrNotRunning, r.PID)
	}
	b, err := connect(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return &Joined{Ready: r, Bus: b, Leaving: true}, nil
}

func connect(ctx context.Context, r Ready, o JoinOptions) (*bus.Bus, error) {
	fleet, err := subjects.ParseFleet(r.Fleet)
	if err != nil {
		return nil, fmt.Errorf("ready file: %w", err)
	}
	ackWait, err := time.ParseDuration(r.AckWait)
	if err != nil {
		return nil, fmt.Errorf("ready file: ack_wait: %w", err)
	}
	c, err := ReadCredentials(r.Credentials)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, err
	}
	b, err := bus.Connect(ctx, bus.Options{
		URLs: []string{r.NATS}, Name: o.Name, User: c.User, Password: c.Password,
		Layout:  subjects.Layout{Fleet: fleet, Replicas: 1, MaxBacklog: o.MaxBacklog},
		AckWait: ackWait, Logger: o.Logger,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		// Nobody listens there, or somebody else who doesn't know our password.
		return nil, fmt.Errorf("%w: process %d, which said that it is one, does not answer: %w", ErrNotRunning, r.PID, err)
	}
	return b, nil
}

// startPatience bounds how long JoinOrStart waits for a fleet that is starting.
const startPatience = 10 * time.Second

// JoinOrStart joins the fleet on the state directory, or starts one and joins that. Any
// number of processes may do so at once: the lock on the directory lets one fleet live.
// It blocks for 10 s at most.
func JoinOrStart(ctx context.Context, o JoinOptions, d Detached) (*Joined, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	const (
		look       = 20 * time.Millisecond
		startAgain = 200 * time.Millisecond
	)
	tick := time.NewTicker(look)
	defer tick.Stop()
	var started time.Time
	for {
		j, err := Join(ctx, o)
		if err == nil || !errors.Is(err, ErrNotRunning) {
			return j, err
		}
		last := err
		if time.Since(started) >= startAgain {
			started = time.Now()
			err := d.start(ctx, o.Dir)
			if err == nil {
				continue // it serves
			}
			if !errors.Is(err, ErrRunning) {
				return nil, err
			}
		}
		// Another process's fleet is starting, or one is leaving.
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("start the dev fleet: another process has %s and does not serve: %w", o.Dir, last)
		}
	}
}
