package natstest

import (
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/bus"
)

// look is how often a state is looked at.
const look = 10 * time.Millisecond

// patience is the least time that Eventually waits: it only decides how long a test takes
// that fails, and a busy machine stands still for seconds.
const patience = 30 * time.Second

// Eventually polls until state returns true, and fails with the last state that it told.
// It is no measure of time: it waits for 30 s at least.
func Eventually(tb testing.TB, within time.Duration, what string, state func() (done bool, last any)) {
	tb.Helper()
	within = max(within, patience)
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		done, last := state()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("%s: not within %v; last state: %v", what, within, last)
		}
	}
}

// Stays polls for a while and fails when state is no longer true.
func Stays(tb testing.TB, during time.Duration, what string, state func() (fine bool, last any)) {
	tb.Helper()
	end := time.NewTimer(during)
	defer end.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if fine, last := state(); !fine {
			tb.Fatalf("%s: %v", what, last)
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		}
	}
}

// Goroutines counts the goroutines that were started under a pprof label test=name, by
// goroutines under it too. Others of the process, of tests that run beside it, don't count.
func Goroutines(tb testing.TB, name string) int {
	tb.Helper()
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		tb.Fatal(err)
	}
	n := 0
	label := fmt.Sprintf("%q:%q", "test", name)
	for stack := range strings.SplitSeq(text.String(), "\n\n") {
		if !strings.Contains(stack, label) {
			continue
		}
		for line := range strings.Lines(stack) { // "3 @ 0x… 0x…"
			var count int
			if _, err := fmt.Sscanf(line, "%d @", &count); err == nil {
				n += count
			}
		}
	}
	return n
}

// Lasting lists the subjects of a stream whose message has no end of its own.
func Lasting(tb testing.TB, b *bus.Bus, stream string) []string {
	tb.Helper()
	subjects, err := b.Subjects(tb.Context(), stream, ">")
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, s := range subjects {
		m, err := b.Last(tb.Context(), stream, s)
		if errors.Is(err, bus.ErrNotFound) {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		if m.Header.Get("Nats-TTL") == "" {
			out = append(out, s)
		}
	}
	return out
}
