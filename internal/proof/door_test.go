package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"raiderfleet/frontdoor"
	"raiderfleet/internal/bus"
)

// doorSpec is a front door process's configuration.
type doorSpec struct {
	Name     string        `json:"name"`
	URL      string        `json:"url"`
	Address  string        `json:"address"` // the file that gets the address when clients are served
	Replicas int           `json:"replicas"`
	AckWait  time.Duration `json:"ack_wait"`
}

func doorMain(args []string) int {
	var spec doorSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	for ctx.Err() == nil {
		b, err := bus.Connect(ctx, bus.Options{URLs: []string{spec.URL}, Name: spec.Name, Layout: layout(spec.Replicas), AckWait: spec.AckWait, Logger: log})
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		err = serveDoor(ctx, b, spec, log)
		b.Close()
		if err != nil {
			log.Error("front door ended", "error", err)
			return 1
		}
	}
	return 0
}

func serveDoor(ctx context.Context, b *bus.Bus, spec doorSpec, log *slog.Logger) error {
	c := frontdoor.Config{Name: spec.Name, Version: "1", MaxBacklog: layout(1).MaxBacklog, Logger: log}
	for _, r := range raiders() {
		c.Raiders = append(c.Raiders, frontdoor.Raider{Name: r.name, Eager: true})
	}
	d, err := frontdoor.New(b, c)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// In place at once: whoever reads the file finds the whole address.
	if err := os.WriteFile(spec.Address+".new", []byte(l.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(spec.Address+".new", spec.Address); err != nil {
		return err
	}
	var present sync.WaitGroup
	present.Go(func() {
		if err := d.Run(ctx); err != nil && ctx.Err() == nil {
			log.Warn("front door is not announced", "error", err)
		}
	})
	err = d.ServeTCP(ctx, l)
	present.Wait()
	return err
}

// door is a front door process, behind a proxy that its publishes are read from.
type door struct {
	process
	f   *fleet
	px  *proxy
	tap *tap
	at  string // the file with its address
}

func (f *fleet) newDoor(name, target string) *door {
	f.tb.Helper()
	d := &door{f: f, tap: newTap(f.h, layout(1).Fleet), at: filepath.Join(f.dir, name+".address")}
	d.px = newProxy(f.tb, target, d.tap)
	spec := doorSpec{Name: name, URL: d.px.url(), Address: d.at, Replicas: f.replicas, AckWait: f.ackWait}
	d.args, d.log = []string{"proof-door", mustJSON(spec)}, filepath.Join(f.dir, name+".log")
	d.start()
	return d
}

// start starts the process on a new port.
func (d *door) start() {
	d.f.tb.Helper()
	_ = os.Remove(d.at)
	d.process.start(d.f.tb)
}

// address is where clients are served; empty when they aren't yet.
func (d *door) address() string {
	text, err := os.ReadFile(d.at)
	if err != nil {
		return ""
	}
	return string(text)
}
