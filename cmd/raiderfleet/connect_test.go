package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raiderfleet/config"
)

func TestTLSFilesAreRead(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tls  config.TLS
		want string
	}{
		{config.TLS{}, ""},
		{config.TLS{CA: "/no/such.pem"}, "nats.tls.ca"},
		{config.TLS{CA: bad}, "no certificate"},
		{config.TLS{Cert: bad, Key: bad}, "nats.tls.cert"},
	} {
		_, err := tlsOf(tt.tls)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.tls, err)
		}
	}
}

func TestWorkerServesWhatItIsToldTo(t *testing.T) {
	t.Parallel()
	zero := time.Duration(0)
	c := &config.Config{
		Worker: config.Worker{Name: "w1", Raiders: []string{"b", "c"}},
		Raiders: []config.Raider{
			{Name: "a", Kind: config.KindDemo},
			{Name: "b", Kind: config.KindDemo, IdleTTL: &zero},
			{Name: "c", Kind: config.KindACP, Command: []string{"agent", "--acp"}, OnWorkerLoss: config.LossRetry, MaxAttempts: 2},
		},
	}
	wc, err := workerOf(c, "/state", slog.New(slog.DiscardHandler))
	if err != nil || len(wc.Raiders) != 2 {
		t.Fatalf("%+v, %v", wc.Raiders, err)
	}
	b, agent := wc.Raiders[0], wc.Raiders[1]
	if b.Name != "b" || b.Command[1] != "demo" || b.Command[3] != "/state/demo" || b.IdleTTL <= 0 || b.IdleTTL > time.Second {
		t.Errorf("b is %+v", b)
	}
	if agent.Name != "c" || strings.Join(agent.Command, " ") != "agent --acp" || agent.OnWorkerLoss != "retry" || agent.MaxAttempts != 2 {
		t.Errorf("c is %+v", agent)
	}
	// 0 means at once here, and 'not set' there.
	if wc.IdleTTL <= 0 || wc.DrainTimeout <= 0 || wc.ReconnectGrace <= 0 {
		t.Errorf("a zero was passed on: %+v", wc)
	}
	// All of the front door's raiders, also those of other workers.
	if fc := frontDoorOf(c, nil); len(fc.Raiders) != 3 || fc.Raiders[0].Name != "a" || fc.Raiders[2].Prompt.EmbeddedContext {
		t.Errorf("front door: %+v", fc.Raiders)
	}
}

func TestTogether(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	untilTold := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if err := together(t.Context(), untilTold, func(context.Context) error { return broken }); !errors.Is(err, broken) || errors.Is(err, context.Canceled) {
		t.Errorf("one that fails: %v", err)
	}
	if err := together(t.Context(), untilTold, func(context.Context) error { return nil }); err != nil {
		t.Errorf("one that ends: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := together(ctx, untilTold, untilTold); err != nil {
		t.Errorf("told to end: %v", err)
	}
}
