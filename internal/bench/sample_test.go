package bench

import (
	"slices"
	"time"
)

// sample is a list of durations of the same thing.
type sample []time.Duration

// time runs f and notes how long it took.
func (s *sample) time(f func()) {
	start := time.Now()
	f()
	*s = append(*s, time.Since(start))
}

// p50 is the median in microseconds.
func (s sample) p50() float64 { return s.quantile(0.5) }

func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Clone(s)
	slices.Sort(sorted)
	return float64(sorted[int(q*float64(len(sorted)-1))]) / float64(time.Microsecond)
}
