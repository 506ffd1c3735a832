package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/devfleet"
	"raiderfleet/internal/natstest"
)

// echoSubject is what the yardstick asks.
const echoSubject = "bench.echo"

// startApart starts a fleet as it runs in earnest: server, worker and front door are
// processes of the program itself.
func startApart(b *testing.B) *fleet {
	b.Helper()
	dir := b.TempDir()
	exe := filepath.Join(dir, "raiderfleet")
	if out, err := exec.Command("go", "build", "-o", exe, "raiderfleet/cmd/raiderfleet").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	config := filepath.Join(dir, "fleet.yml")
	if err := os.WriteFile(config, []byte("raiders:\n  - {name: demo, kind: demo}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	part := func(name string, args ...string) devfleet.Ready {
		b.Helper()
		ready := filepath.Join(dir, name+".json")
		args = append([]string{name, "--config", config, "--state-dir", filepath.Join(dir, name), "--ready-file", ready, "--log-level", "error"}, args...)
		startPart(b, exe, args...)
		var r devfleet.Ready
		natstest.Eventually(b, time.Minute, name+" serves", func() (bool, any) {
			var err error
			r, err = devfleet.ReadReady(ready)
			return err == nil, err
		})
		return r
	}
	f := &fleet{url: part("nats", "--listen", "127.0.0.1:0").NATS}
	part("worker", "--nats", f.url, "--capacity", "4", "--max-warm", "64")
	f.addr = part("frontdoor", "--nats", f.url, "--listen", "127.0.0.1:0").ACP
	return f
}

// startPart starts a process that is ended with the benchmark.
func startPart(b *testing.B, exe string, args ...string) {
	b.Helper()
	cmd := exec.Command(exe, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		end := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		if err := cmd.Wait(); err != nil {
			b.Errorf("%s ended: %v", args[0], err)
		}
	})
}

// requesterApart is the yardstick of such a fleet: who answers is a process of its own too.
func (f *fleet) requesterApart(b *testing.B) func() {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	conn, err := nats.Connect(f.url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	startPart(b, exe, "echo", f.url)
	natstest.Eventually(b, time.Minute, "an answer", func() (bool, any) {
		_, err := conn.Request(echoSubject, nil, time.Second)
		return err == nil, err
	})
	body := make([]byte, 200)
	return func() {
		if _, err := conn.Request(echoSubject, body, 10*time.Second); err != nil {
			b.Fatal(err)
		}
	}
}

// answer answers the yardstick until ctx ends.
func answer(ctx context.Context, url string) error {
	conn, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	sub, err := conn.Subscribe(echoSubject, func(m *nats.Msg) { _ = m.Respond(m.Data) }) // a lost one fails the request
	if err != nil {
		return err
	}
	<-ctx.Done()
	return errors.Join(sub.Unsubscribe())
}
