package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/devfleet"
	"raiderfleet/internal/natstest"
)

// The servers that we run go on by themselves when there is room again, with all that they
// had accepted.
func TestNATSOverAFullDisk(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*home) (*process, *bus.Bus){
		"nats": func(h *home) (*process, *bus.Bus) {
			path := filepath.Join(h.dir, "ready.json")
			p := h.start("nats", "--listen", "127.0.0.1:0", "--ready-file", path)
			var r devfleet.Ready
			natstest.Eventually(t, patience, "NATS serves", func() (done bool, last any) {
				var err error
				r, err = devfleet.ReadReady(path)
				return err == nil, err
			})
			layout := natstest.Layout(1)
			layout.Memory = false
			b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{r.NATS}, Layout: layout, AckWait: natstest.AckWait})
			if err != nil {
				t.Fatal(err)
			}
			return p, b
		},
		"dev": func(h *home) (*process, *bus.Bus) {
			p := h.start("dev")
			var j *devfleet.Joined
			natstest.Eventually(t, patience, "dev serves", func() (done bool, last any) {
				var err error
				j, err = devfleet.Join(t.Context(), devfleet.JoinOptions{Dir: h.devDir(), MaxBacklog: 1000})
				return err == nil, err
			})
			return p, j.Bus
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := start(newHome(t))
			defer b.Close()
			if err := b.Declare(t.Context()); err != nil {
				t.Fatal(err)
			}
			publish := func() (uint64, error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return b.Publish(ctx, &nats.Msg{Subject: b.Fleet().Event("s1"), Data: make([]byte, 1000)})
			}
			first, err := publish()
			if err != nil {
				t.Fatal(err)
			}
			// No write of the process succeeds, as on a full disk.
			limit := func(bytes uint64) {
				t.Helper()
				if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
					t.Fatal(err)
				}
			}
			limit(0)
			natstest.Eventually(t, patience, "nothing is stored", func() (bool, any) {
				_, err := publish()
				return err != nil, err
			})
			limit(unix.RLIM_INFINITY)
			natstest.Eventually(t, patience, "it is stored again", func() (bool, any) {
				_, err := publish()
				return err == nil, err
			})
			if m, err := b.Next(t.Context(), b.Fleet().EventsStream(), b.Fleet().Event("s1"), first); err != nil || m.Seq != first {
				t.Errorf("the first one: %d, %v", m.Seq, err)
			}
		})
	}
}
