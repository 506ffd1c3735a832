package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// oneShot is the demo as a stream raider: one prompt, its events on stdout, with the
// options of the hall's own raider.
type oneShot struct {
	session, engine, model, root string
	packs                        []string
	prompt                       string
}

// packList is an option that may be there several times.
type packList struct{ names *[]string }

// String implements flag.Value.
func (p packList) String() string { return "" }

// Set implements flag.Value.
func (p packList) Set(name string) error {
	*p.names = append(*p.names, name)
	return nil
}

// perform runs the prompt and gives the exit code: 0 completed, 1 failed, 2 no such
// session, 128 + signal when a signal ended it. The first SIGINT cancels the turn; the
// second and SIGTERM end it as interrupted at once.
func (o oneShot) perform(ctx context.Context, s *store, j journal, stdout io.Writer, log *slog.Logger) int {
	if o.root == "" {
		wd, err := os.Getwd()
		if err != nil {
			log.Error("no working directory", "error", err)
			return 1
		}
		o.root = wd
	}
	root, err := filepath.Abs(o.root)
	if err == nil && o.session == "" {
		o.session = "demo-" + rand.Text()
		err = s.create(o.session, root)
	} else if err == nil {
		_, err = s.load(o.session)
	}
	if err != nil {
		log.Error("no session", "session", o.session, "error", err)
		return 2
	}
	v := &eventVoice{w: stdout}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	err = errors.Join(
		v.event("run.started", map[string]any{"engine": o.engine, "model": o.model, "packs": o.packs, "session": map[string]string{"id": o.session}}),
		v.event("run.state", map[string]any{"state": "running"}),
	)
	if err != nil {
		log.Error("no output", "error", err)
		return 1
	}
	t := &turn{voice: v, store: s, journal: j, session: o.session, cwd: root, text: o.prompt}
	go func() { ended <- t.run(ctx) }() // on hang left behind when the process ends
	for {
		select {
		case err := <-ended:
			return o.finish(v, err, ctx.Err() != nil)
		case sig := <-signals:
			if sig == os.Interrupt && ctx.Err() == nil {
				cancel(errCancelled)
				continue
			}
			number, _ := sig.(syscall.Signal)
			_ = v.event("run.finished", map[string]any{"status": "interrupted", "signal": signalName(sig), "session": map[string]string{"id": o.session}}) // the end in any case
			return 128 + int(number)
		}
	}
}

// finish writes how the run ended and gives the exit code.
func (o oneShot) finish(v *eventVoice, err error, cancelledRun bool) int {
	end := map[string]any{"session": map[string]string{"id": o.session}}
	code := 0
	switch {
	case cancelledRun:
		end["status"], code = "cancelled", 130
	case err != nil:
		end["status"], end["error"], code = "failed", err.Error(), 1
	default:
		v.mu.Lock()
		end["status"], end["response"] = "completed", v.last
		v.mu.Unlock()
	}
	if err := errors.Join(v.event("run.state", map[string]any{"state": end["status"]}), v.event("run.finished", end)); err != nil {
		return 1
	}
	return code
}

func signalName(s os.Signal) string {
	switch s {
	case os.Interrupt:
		return "INT"
	case syscall.SIGTERM:
		return "TERM"
	}
	return fmt.Sprint(s)
}
