package admin

import (
	"context"
	"time"
)

// lateBeat is how late a presence may be on a busy machine, or between two clocks.
const lateBeat = 2 * time.Second

// LiveWorkers is Workers with what each of them says of its lanes now: its record is as
// old as an ack_wait. One that does not answer within a second is left as it is written, and
// is silent when its presence should have been renewed.
func (f *Fleet) LiveWorkers(ctx context.Context) ([]Worker, error) {
	workers, err := f.Workers(ctx)
	if err != nil {
		return nil, err
	}
	replies, err := f.askAll(ctx, workers)
	if err != nil {
		return nil, err
	}
	for i := range workers {
		reply := replies[i]
		if reply == nil {
			workers[i].Silent = f.now().Sub(workers[i].Seen) > f.b.AckWait()+lateBeat
			continue
		}
		workers[i].Running, workers[i].Warm = 0, len(reply.Lanes)
		for _, l := range reply.Lanes {
			if l.Prompt != "" {
				workers[i].Running++
			}
		}
	}
	return workers, nil
}
