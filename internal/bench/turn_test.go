package bench

import (
	"testing"
	"time"
)

// BenchmarkNATS measures the yardsticks alone.
func BenchmarkNATS(b *testing.B) {
	f := startFleet(b, 1, 1)
	b.Run("request", func(b *testing.B) {
		request := f.requester(b)
		var s sample
		for b.Loop() {
			s.time(request)
		}
		b.ReportMetric(s.p50(), "p50-µs")
	})
	b.Run("publish", func(b *testing.B) {
		publish := f.publisher(b)
		var s sample
		for b.Loop() {
			s.time(publish)
		}
		b.ReportMetric(s.p50(), "p50-µs")
	})
}

// rest is a pause in which the threads of all processes fall asleep.
const rest = 5 * time.Millisecond

// BenchmarkWarmTurn measures `echo x` in a session whose raider runs already, beside the
// yardsticks. apart: a turn finds the lane at rest, as a person's prompt does.
// back-to-back: it also waits for what follows the turn before it.
//
// request is asked again and again, so that all that takes part in it is awake; rested
// comes after a pause, as each step of a turn does.
func BenchmarkWarmTurn(b *testing.B) {
	here := func(b *testing.B, block, yards int) {
		b.Helper()
		f := startFleet(b, 4, 8)
		warmTurns(b, f, f.requester(b), f.publisher(b), block, yards)
	}
	b.Run("apart", func(b *testing.B) { here(b, 1, 20) })
	b.Run("back-to-back", func(b *testing.B) { here(b, 50, 50) })
	// As in earnest: server, worker, front door and who answers the request are processes.
	b.Run("processes", func(b *testing.B) {
		f := startApart(b)
		warmTurns(b, f, f.requesterApart(b), nil, 20, 20)
	})
}

// warmTurns measures each yardstick `yards` times after every `block` turns.
func warmTurns(b *testing.B, f *fleet, request, publish func(), block, yards int) {
	b.Helper()
	client, pipe := f.agent(b), bare(b, b.TempDir())
	b.Cleanup(pipe.close)
	session, inner := client.session(), pipe.session()
	for range 5 {
		client.turn(session, "echo x")
		pipe.turn(inner, "echo x")
		request()
	}
	var turns, pipes, requests, publishes, rested sample
	for i := 0; b.Loop(); i++ {
		if block == 1 {
			b.StopTimer()
			pause()
			b.StartTimer()
		}
		turns.time(func() { client.turn(session, "echo x") })
		if i%block != 0 {
			continue
		}
		b.StopTimer()
		for range yards {
			requests.time(request)
			if publish != nil {
				publishes.time(publish)
			}
		}
		for range max(1, yards/10) {
			pause()
			rested.time(request)
		}
		for range max(1, yards/10) {
			pipes.time(func() { pipe.turn(inner, "echo x") })
		}
		b.StartTimer()
	}
	b.ReportMetric(turns.p50(), "p50-µs")
	b.ReportMetric(turns.quantile(0.99), "p99-µs")
	b.ReportMetric(requests.p50(), "request-µs")
	if publish != nil {
		b.ReportMetric(publishes.p50(), "publish-µs")
	}
	b.ReportMetric(pipes.p50(), "pipe-µs")
	b.ReportMetric(rested.p50(), "rested-µs")
	b.ReportMetric(turns.p50()/requests.p50(), "x-request")
	b.ReportMetric(turns.p50()/rested.p50(), "x-rested")
	b.ReportMetric(turns.p50()/pipes.p50(), "x-pipe")
}

func pause() {
	timer := time.NewTimer(rest)
	<-timer.C
}

// BenchmarkColdTurn measures session/new and the first prompt, with the start of the
// raider in it, beside the same raider started, initialized and prompted by hand.
func BenchmarkColdTurn(b *testing.B) {
	b.Run("here", func(b *testing.B) { coldTurns(b, startFleet(b, 4, 64)) })
	b.Run("processes", func(b *testing.B) { coldTurns(b, startApart(b)) })
}

func coldTurns(b *testing.B, f *fleet) {
	b.Helper()
	client := f.agent(b)
	client.turn(client.session(), "echo x") // the binary is in the page cache
	var colds, bares sample
	state := b.TempDir()
	for b.Loop() {
		var session string
		colds.time(func() {
			session = client.session()
			client.turn(session, "echo x")
		})
		b.StopTimer()
		client.closeSession(session)
		var a *agent
		bares.time(func() {
			a = bare(b, state)
			a.turn(a.session(), "echo x")
		})
		a.close()
		b.StartTimer()
	}
	b.ReportMetric(colds.p50(), "p50-µs")
	b.ReportMetric(bares.p50(), "bare-µs")
	b.ReportMetric(colds.p50()/bares.p50(), "x-bare")
}
