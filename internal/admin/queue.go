package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"raiderfleet/subjects"
)

// Waiting is a prompt in a lane.
type Waiting struct {
	Prompt    subjects.PromptID  `json:"prompt"`
	Session   subjects.SessionID `json:"session"`
	Principal subjects.Principal `json:"principal"`
	Raider    subjects.Raider    `json:"raider"`
	Lane      subjects.LaneID    `json:"lane"`
	// Place counts from 0, what runs included.
	Place int       `json:"place"`
	Since time.Time `json:"since"`
	// Why it waits, for a person. "runs" when it does not.
	Why string `json:"why"`
	// Worker that runs it.
	Worker subjects.Instance `json:"worker,omitempty"`
}

// Queue lists all prompts that run or wait, lane by lane, the oldest lane first.
func (f *Fleet) Queue(ctx context.Context) ([]Waiting, error) {
	prompts, err := f.backlog(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := f.LiveWorkers(ctx)
	if err != nil {
		return nil, err
	}
	lanes := map[subjects.LaneID][]stored{}
	var order []subjects.LaneID
	for _, p := range prompts {
		if lanes[p.lane] == nil {
			order = append(order, p.lane)
		}
		lanes[p.lane] = append(lanes[p.lane], p)
	}
	out := []Waiting{}
	for _, id := range order {
		// By sequence, whatever the order of the consumer.
		slices.SortFunc(lanes[id], func(a, b stored) int { return cmp.Compare(a.seq, b.seq) })
		for place, p := range lanes[id] {
			w := Waiting{
				Prompt: p.header.Prompt, Session: p.header.Session, Principal: p.header.Principal,
				Raider: p.raider, Lane: p.lane, Place: place, Since: p.time,
				Why: fmt.Sprintf("%d before it", place),
			}
			if place == 0 {
				if w.Why, w.Worker, err = f.whyFirst(ctx, p, workers); err != nil {
					return nil, err
				}
			}
			out = append(out, w)
		}
	}
	return out, nil
}

// whyFirst says why the first prompt of a lane does not run, or where it does.
func (f *Fleet) whyFirst(ctx context.Context, p stored, workers []Worker) (string, subjects.Instance, error) {
	r, ok, err := f.record(ctx, p.header.Prompt)
	switch {
	case err != nil:
		return "", "", err
	case ok && r.State == subjects.RunRunning:
		return "runs", r.Owner.Instance, nil
	case ok:
		return "has ended, is being put away", r.Owner.Instance, nil
	}
	serving, free := 0, 0
	var draining, silent subjects.Instance
	for _, w := range workers {
		switch {
		case !slices.Contains(w.Raiders, p.raider):
		case w.Silent:
			silent = w.Instance
		case w.State == subjects.NodeDraining:
			draining = w.Instance
		case w.State == subjects.NodeUp:
			serving++
			if w.Running < w.Capacity {
				free++
			}
		}
	}
	switch {
	case serving == 0 && silent != "":
		return fmt.Sprintf("worker %s is silent, no other serves raider %s", silent, p.raider), "", nil
	case serving == 0 && draining != "":
		return fmt.Sprintf("worker %s is ending, no other serves raider %s", draining, p.raider), "", nil
	case serving == 0:
		return "no worker serves raider " + string(p.raider), "", nil
	case free == 0:
		return "no worker has a free place", "", nil
	default:
		return "starts", "", nil
	}
}
