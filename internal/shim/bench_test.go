//go:build unix

package shim_test

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"raiderfleet/internal/shim"
)

// BenchmarkSpawn starts the same raider until its first line: without a shim, with one,
// and with one that was started ahead. Ends are not measured. The median is reported too,
// as one slow start among many says little about the others.
func BenchmarkSpawn(b *testing.B) {
	first := func(b *testing.B, r io.Reader) {
		b.Helper()
		if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
			b.Fatal(err)
		}
	}
	bare := func(b *testing.B) func() {
		b.Helper()
		cmd := exec.CommandContext(b.Context(), self()[0], "raider", "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		first(b, out)
		return func() { _ = in.Close(); _ = cmd.Wait() }
	}
	under := func(b *testing.B, pool *shim.Pool) func() {
		b.Helper()
		s := spec("cat")
		s.Pool = pool
		p, err := shim.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		first(b, p.Stdout())
		return func() {
			p.Kill()
			<-p.Gone()
			_ = p.Stdout().Close()
			_ = p.Stderr().Close()
		}
	}
	measure := func(b *testing.B, ready func(), start func() (end func())) {
		b.Helper()
		var all []time.Duration
		for b.Loop() {
			b.StopTimer()
			ready()
			b.StartTimer()
			begin := time.Now()
			end := start()
			all = append(all, time.Since(begin))
			b.StopTimer()
			end()
			b.StartTimer()
		}
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	}
	b.Run("bare", func(b *testing.B) { measure(b, func() {}, func() func() { return bare(b) }) })
	b.Run("shim", func(b *testing.B) { measure(b, func() {}, func() func() { return under(b, nil) }) })
	b.Run("pool", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		pool := shim.NewPool(self("shim"), nil, 1)
		ran := make(chan error, 1)
		go func() { ran <- pool.Run(ctx) }()
		full := func() {
			for pool.Len() == 0 {
				runtime.Gosched()
			}
		}
		measure(b, full, func() func() { return under(b, pool) })
		cancel()
		if err := <-ran; err != nil {
			b.Error(err)
		}
	})
}
