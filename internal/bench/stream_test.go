package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// updatesPerTurn and updateBytes are one turn of the throughput benchmarks: updates of
// the size that a model's tokens come in.
const (
	updatesPerTurn = 5000
	updateBytes    = 100
)

// BenchmarkUpdates measures the updates a second that reach a client, through one
// session and through 32 at once, beside as many raiders on bare pipes.
func BenchmarkUpdates(b *testing.B) {
	for _, sessions := range []int{1, 32} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			f := startFleet(b, sessions, 2*sessions)
			fleet, pipes := make([]talk, sessions), make([]talk, sessions)
			for i := range fleet {
				// Four clients share the sessions.
				if i < 4 {
					fleet[i].agent = f.agent(b)
				} else {
					fleet[i].agent = fleet[i%4].agent
				}
				pipes[i].agent = bare(b, b.TempDir())
				b.Cleanup(pipes[i].agent.close)
				fleet[i].session, pipes[i].session = fleet[i].agent.session(), pipes[i].agent.session()
			}
			each := updatesPerTurn / max(1, sessions/4)
			text := fmt.Sprintf("stream %d %d", each, updateBytes)
			all(b, fleet, "echo warm")
			var through, direct time.Duration
			turns := 0
			for b.Loop() {
				through += all(b, fleet, text)
				b.StopTimer()
				direct += all(b, pipes, text)
				turns++
				b.StartTimer()
			}
			total := float64(turns * each * sessions)
			got := int64(0)
			for i := range min(4, sessions) {
				got += fleet[i].agent.updates.Load()
			}
			if want := int64(total) + int64(sessions); got < want {
				b.Errorf("%d updates came, want %d", got, want)
			}
			b.ReportMetric(total/through.Seconds(), "updates/s")
			b.ReportMetric(total/direct.Seconds(), "pipe-updates/s")
			b.ReportMetric(direct.Seconds()/through.Seconds(), "x-pipe")
		})
	}
}

// talk is a session at an agent.
type talk struct {
	agent   *agent
	session string
}

// all does one turn in each session at once and returns how long they took together.
func all(b *testing.B, talks []talk, text string) time.Duration {
	b.Helper()
	start := time.Now()
	var turns sync.WaitGroup
	for _, t := range talks {
		turns.Go(func() {
			if err := t.agent.tryTurn(t.session, text); err != nil {
				b.Error(err)
			}
		})
	}
	turns.Wait()
	return time.Since(start)
}
