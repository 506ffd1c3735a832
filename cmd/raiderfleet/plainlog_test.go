package main

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
)

// A person at a command reads lines, not a log; programs choose a format.
func TestPlainLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{stderr: &out}
	log, err := a.logger(slog.LevelWarn)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("not for them")
	log.Warn("NATS link lost", "error", errors.New("EOF"))
	log.With("fleet", "f").Warn("NATS link\nrestored", "server", "n1", "none", "")
	log.Error("it broke", "error", errors.New("why"))
	const want = "raiderfleet: warning: NATS link lost: EOF\nraiderfleet: warning: NATS link restored (fleet f, server n1)\nraiderfleet: it broke: why\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	for format, start := range map[string]string{"text": "time=", "json": "{"} {
		out.Reset()
		a.logFormat = format
		if log, err = a.logger(slog.LevelWarn); err != nil {
			t.Fatal(err)
		}
		log.Warn("x")
		if !bytes.HasPrefix(out.Bytes(), []byte(start)) {
			t.Errorf("%s: %q", format, out.String())
		}
	}
	// Servers write a log.
	out.Reset()
	a.logFormat = ""
	if log, err = a.logger(slog.LevelInfo); err != nil {
		t.Fatal(err)
	}
	log.Info("x")
	if !bytes.HasPrefix(out.Bytes(), []byte("time=")) {
		t.Errorf("%q", out.String())
	}
}
