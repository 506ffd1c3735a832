package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"raiderfleet/config"
	"raiderfleet/frontdoor"
	"raiderfleet/internal/demo"
	"raiderfleet/internal/devfleet"
	"raiderfleet/internal/stream"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

// eofGrace is what a running turn gets after the end of stdin.
const eofGrace = 5 * time.Second

func layoutOf(c *config.Config) (subjects.Layout, error) {
	fleet, err := subjects.ParseFleet(c.Fleet)
	if err != nil {
		return subjects.Layout{}, err
	}
	return subjects.Layout{
		Fleet: fleet, Replicas: c.Replicas, MaxBacklog: c.MaxBacklog, EventsBytes: int64(c.Logs.MaxEventsSize),
	}, nil
}

// frontDoorOf translates the configuration for a front door.
func frontDoorOf(c *config.Config, log *slog.Logger) frontdoor.Config {
	fc := frontdoor.Config{
		Name: c.Worker.Name, Version: buildVersion(),
		MaxBacklog: c.MaxBacklog, ReconnectGrace: c.ReconnectGrace, OnDisconnect: c.OnDisconnect,
		MaxLineBytes: int(c.FrontDoor.MaxLine), EOFGrace: eofGrace, Logger: log,
	}
	for _, r := range c.Raiders {
		fc.Raiders = append(fc.Raiders, frontdoor.Raider{
			Name: subjects.Raider(r.Name), Description: r.Description,
			// What an agent takes is known when it runs; true here must hold.
			Prompt: frontdoor.PromptCapabilities{EmbeddedContext: r.Kind != config.KindACP},
			Eager:  r.Open == config.OpenEager && r.Kind != config.KindStream,
		})
	}
	return fc
}

// withRaidersOf takes over the raiders of a running dev fleet: its worker serves no
// others.
func withRaidersOf(fc frontdoor.Config, ready devfleet.Ready) frontdoor.Config {
	fc.Raiders = nil
	for _, r := range ready.Raiders {
		fc.Raiders = append(fc.Raiders, frontdoor.Raider{
			Name: subjects.Raider(r.Name), Description: r.Description,
			Prompt: frontdoor.PromptCapabilities{Image: r.Image, Audio: r.Audio, EmbeddedContext: r.EmbeddedContext},
			Eager:  r.Eager,
		})
	}
	return fc
}

// workerOf translates the configuration for a worker that keeps its state under dir.
func workerOf(c *config.Config, dir string, log *slog.Logger) (worker.Config, error) {
	exe, err := self()
	if err != nil {
		return worker.Config{}, fmt.Errorf("find the own binary: %w", err)
	}
	wc := worker.Config{
		Name: c.Worker.Name, Version: buildVersion(), Exe: []string{exe, "shim"},
		StateDir: filepath.Join(dir, "workers", c.Worker.Name),
		Capacity: c.Worker.Capacity, MaxWarm: c.Worker.MaxWarm,
		PermissionTimeout: c.PermissionTimeout, CancelGrace: c.CancelGrace,
		// 0 is 'not set' for a worker, and 'at once' for who configured it.
		ReconnectGrace: max(c.ReconnectGrace, time.Millisecond),
		IdleTTL:        max(c.IdleTTL, time.Millisecond),
		DrainTimeout:   max(c.DrainTimeout, time.Millisecond),
		AllowBypass:    c.Worker.AllowBypass,
		KeepEvents:     c.Logs.KeepEvents,
		MaxLogSize:     int64(c.Logs.MaxLogSize),
		Logger:         log,
	}
	for _, r := range c.Raiders {
		if len(c.Worker.Raiders) > 0 && !slices.Contains(c.Worker.Raiders, r.Name) {
			continue
		}
		wr := worker.Raider{
			Name: subjects.Raider(r.Name), Command: r.Command, Env: r.Env, PassEnv: r.PassEnv, Cwd: r.Cwd,
			OnWorkerLoss: r.OnWorkerLoss, MaxAttempts: r.MaxAttempts, MaxRunning: r.MaxRunning,
			Policy: r.Policy, ClientMethods: r.ClientMethods, TranscriptBudget: int(r.TranscriptBudget),
		}
		if c.Hall && r.HallOwn() {
			// A hall works in its own directory, wherever its clients are.
			wr.FallbackCwd = filepath.Dir(c.File)
		}
		switch r.Kind {
		case config.KindACP:
			wr.Command, wr.Probe = fromFile(c.File, r.Command), true
		case config.KindDemo:
			// One directory for all workers of the host: any of them can load a session.
			wr.Command = []string{exe, "demo", "--state", filepath.Join(dir, "demo")}
			wr.Agent = &subjects.Agent{Capabilities: json.RawMessage(demo.Capabilities)}
			wr.Agent.Settings.Modes, wr.Agent.Settings.Options = demo.Settings()
		case config.KindStream:
			args, err := stream.Config{
				Command: r.Command, Engine: r.Engine, Model: r.Model, Packs: r.Packs, Persona: r.Persona,
			}.Args()
			if err != nil {
				return worker.Config{}, fmt.Errorf("raider %s: %w", r.Name, err)
			}
			wr.Kind, wr.Command = worker.KindStream, append([]string{exe, "stream-raider"}, args...)
			wr.Agent = &subjects.Agent{Capabilities: json.RawMessage(stream.Capabilities)}
			// Variables of the worker's own, so that its raiders need not name them.
			wr.PassEnv = append(slices.Clone(r.PassEnv), stream.EnvRaiderBin, stream.EnvHallRaiderBin)
		}
		if r.IdleTTL != nil {
			wr.IdleTTL = max(*r.IdleTTL, time.Millisecond)
		}
		wc.Raiders = append(wc.Raiders, wr)
	}
	return wc, nil
}

// fromFile takes a relative program of a command from the directory of the configuration's
// file: from the session's directory any checkout could supply it. A bare name is looked up
// in PATH.
func fromFile(file string, command []string) []string {
	if file == "" || len(command) == 0 || filepath.IsAbs(command[0]) || !strings.ContainsRune(command[0], filepath.Separator) {
		return command
	}
	out := slices.Clone(command)
	out[0] = filepath.Join(filepath.Dir(file), command[0])
	return out
}
