package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"raiderfleet/subjects"
)

// Control asks the owner of a lane and waits at most timeout. An error says nothing about
// what was done: without an owner it is nats.ErrNoResponders; the owner may be changing.
func (b *Bus) Control(ctx context.Context, lane subjects.LaneID, req subjects.ControlRequest, timeout time.Duration) (subjects.ControlReply, error) {
	var reply subjects.ControlReply
	body, err := json.Marshal(req)
	if err != nil {
		return reply, fmt.Errorf("control request: %w", err)
	}
	ctx, cancel := b.Bound(ctx, timeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, b.Fleet().Control(lane), body)
	if err != nil {
		return reply, cause(ctx, err)
	}
	return reply, json.Unmarshal(m.Data, &reply)
}
