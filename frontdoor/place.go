package frontdoor

import (
	"context"
	"slices"

	"raiderfleet/subjects"
)

// toldPlaces is how near to the front a waiting prompt is told each change of its place.
const toldPlaces = 10

// queuePlace is a waiting prompt's place: how many are before it, the running one
// included, of how many.
type queuePlace struct {
	Prompt subjects.PromptID `json:"prompt"`
	Place  int               `json:"place"`
	Of     int               `json:"of"`
}

// walk looks where the session's waiting prompts stand in their lane.
func (w *follower) walk(ctx context.Context) {
	places := w.look(ctx)
	select {
	case w.placed <- places:
	case <-ctx.Done():
	}
}

func (w *follower) look(ctx context.Context) []queuePlace {
	a := w.a
	a.mu.Lock()
	meta := a.meta
	waiting := map[subjects.PromptID]int{} // and the place that was told last
	for _, t := range a.turns {
		if t.accepted && !t.started {
			waiting[t.prompt] = t.place
		}
	}
	a.mu.Unlock()
	bound, cancel := w.f.b.Bound(ctx, w.f.b.AckWait()/3)
	defer cancel()
	counts, err := w.f.b.Counts(bound, w.f.fleet.BacklogStream(), w.f.fleet.BacklogLane(meta.Raider, meta.Lane))
	if err != nil {
		return nil
	}
	of := 0
	for _, n := range counts { // of each principal on a slot
		of += int(n) //nolint:gosec // far below
	}
	front, opens, err := w.f.backlog(bound, meta, 0, toldPlaces+1)
	if err != nil {
		return nil
	}
	of -= len(opens)
	var out []queuePlace
	for i, m := range front {
		if _, mine := waiting[m.header.Prompt]; mine {
			delete(waiting, m.header.Prompt)
			out = append(out, queuePlace{m.header.Prompt, i, max(of, i+1)})
		}
	}
	// Beyond the first ten the place is told once, from the number of those that wait:
	// looking it up would cost more the longer the queue is.
	if of > len(front) {
		a.mu.Lock()
		behind := 0
		for _, t := range slices.Backward(a.turns) {
			told, mine := waiting[t.prompt]
			if !mine {
				continue
			}
			if told == 0 {
				out = append(out, queuePlace{t.prompt, max(of-1-behind, toldPlaces+1), of})
			}
			behind++
		}
		a.mu.Unlock()
	}
	return out
}

// tellPlaces tells what has changed. It is the follower's, so that nothing is told of a
// turn that has been answered.
func (w *follower) tellPlaces(places []queuePlace) {
	for _, p := range places {
		w.a.mu.Lock()
		tell, first := false, false
		for _, t := range w.a.turns {
			if t.prompt == p.Prompt && !t.started && !t.closing && p.Place > 0 && t.place != p.Place {
				first = t.place == 0
				t.place, tell = p.Place, true
			}
		}
		w.a.mu.Unlock()
		if tell {
			w.a.info("raiderfleet/queue", object(p))
		}
		if first {
			w.a.tellWaiting(p)
		}
	}
}
