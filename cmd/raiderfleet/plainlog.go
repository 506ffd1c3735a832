package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// plainLog is a slog.Handler for people at a command: a line such as
// "raiderfleet: warning: NATS link lost: EOF", without time and names of what it is about.
type plainLog struct {
	out   io.Writer
	level slog.Level
	mu    *sync.Mutex // a line goes out whole
	attrs []slog.Attr
}

func newPlainLog(out io.Writer, level slog.Level) *plainLog {
	return &plainLog{out: out, level: level, mu: &sync.Mutex{}}
}

// Enabled implements slog.Handler.
func (h *plainLog) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle implements slog.Handler. The error comes last, behind a colon.
func (h *plainLog) Handle(_ context.Context, r slog.Record) error {
	var about []string
	reason := ""
	note := func(a slog.Attr) bool {
		switch {
		case a.Key == "error":
			reason = ": " + a.Value.String()
		case a.Value.String() != "":
			about = append(about, a.Key+" "+a.Value.String())
		}
		return true
	}
	for _, a := range h.attrs {
		note(a)
	}
	r.Attrs(note)
	text := r.Message
	if len(about) > 0 {
		text += " (" + strings.Join(about, ", ") + ")"
	}
	kind := ""
	if r.Level >= slog.LevelWarn {
		kind = "warning: "
	}
	if r.Level >= slog.LevelError {
		kind = ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintf(h.out, "raiderfleet: %s%s%s\n", kind, strings.Join(strings.Fields(text), " "), reason)
	return err
}

// WithAttrs implements slog.Handler.
func (h *plainLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = append(append([]slog.Attr(nil), h.attrs...), attrs...)
	return &with
}

// WithGroup implements slog.Handler; nothing here is grouped.
func (h *plainLog) WithGroup(string) slog.Handler { return h }
