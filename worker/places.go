package worker

import (
	"sync"

	"raiderfleet/subjects"
)

// places counts live runs against the capacity.
type places struct {
	capacity int
	// freed has capacity 1: a hint to look again, never the truth.
	freed chan struct{}

	mu   sync.Mutex // guards used and by
	used int
	by   map[subjects.Raider]int
}

func newPlaces(capacity int) *places {
	return &places{capacity: capacity, freed: make(chan struct{}, 1), by: map[subjects.Raider]int{}}
}

// take takes a place for a run of r, unless all are used or r has its maximum.
func (p *places) take(r *Raider) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used >= p.capacity || (r.MaxRunning > 0 && p.by[r.Name] >= r.MaxRunning) {
		return false
	}
	p.used++
	p.by[r.Name]++
	return true
}

func (p *places) give(r *Raider) {
	p.mu.Lock()
	p.used--
	p.by[r.Name]--
	p.mu.Unlock()
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// free says whether a run of r would get a place.
func (p *places) free(r *Raider) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used < p.capacity && (r.MaxRunning == 0 || p.by[r.Name] < r.MaxRunning)
}

func (p *places) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}
