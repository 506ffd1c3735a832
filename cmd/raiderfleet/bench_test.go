package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkDevStart measures `raiderfleet dev` from its start to its ready file, NATS with
// JetStream, worker and front door in it, beside the start of the same binary for
// `version`.
func BenchmarkDevStart(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, args := range [][]string{{"dev"}, {"dev", "--memory"}} {
		b.Run(fmt.Sprint(args), func(b *testing.B) {
			var starts, bares []time.Duration
			for b.Loop() {
				dir := b.TempDir()
				command := func(args ...string) *exec.Cmd {
					cmd := exec.Command(exe, args...)
					cmd.Env = append(os.Environ(),
						asProgram+"=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"),
						"RAIDERFLEET_FRONTDOOR_LISTEN=127.0.0.1:0")
					cmd.Dir = dir
					return cmd
				}
				begin := time.Now()
				if out, err := command("version").CombinedOutput(); err != nil {
					b.Fatal(err, string(out))
				}
				bares = append(bares, time.Since(begin))
				ready := filepath.Join(dir, "ready.json")
				dev := command(append(args, "--ready-file", ready)...)
				var stderr bytes.Buffer
				dev.Stderr = &stderr
				begin = time.Now()
				if err := dev.Start(); err != nil {
					b.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- dev.Wait() }()
				tick := time.NewTicker(time.Millisecond)
				for serving := false; !serving; {
					select {
					case err := <-ended:
						b.Fatalf("dev ended: %v\n%s", err, stderr.String())
					case <-tick.C:
						_, err := os.Stat(ready)
						serving = err == nil
					}
				}
				starts = append(starts, time.Since(begin))
				tick.Stop()
				if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
					b.Fatal(err)
				}
				if err := <-ended; err != nil {
					b.Fatalf("dev ended: %v\n%s", err, stderr.String())
				}
			}
			b.ReportMetric(median(starts), "ready-ms")
			b.ReportMetric(median(bares), "version-ms")
		})
	}
}

func median(of []time.Duration) float64 {
	slices.Sort(of)
	return float64(of[len(of)/2].Microseconds()) / 1000
}
