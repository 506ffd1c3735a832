package frontdoor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// deleteSession answers session/delete when all that the session had is gone. The state
// deleted is written first and is final: nobody opens it again, and no prompt starts. One
// that is not there, or is another's, is deleted already.
func (c *conn) deleteSession(ctx context.Context, r *rpc.Request) error {
	id, err := sessionOf(r.Params)
	if err != nil {
		return err
	}
	meta, err := c.setState(ctx, id, func(m *subjects.SessionMeta) bool {
		if m.State == subjects.SessionDeleted {
			return false // a front door died over it: once more
		}
		m.State = subjects.SessionDeleted
		return true
	})
	if none := new(rpc.Error); errors.As(err, &none) && none.Code == rpc.CodeNotFound {
		answer(c.log, r, struct{}{})
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.endSession(ctx, meta); err != nil {
		return err
	}
	if err := c.find(meta.Session).letGo(ctx); err != nil {
		return err
	}
	if err := c.erase(ctx, meta); err != nil {
		return err
	}
	answer(c.log, r, struct{}{})
	return nil
}

// settled waits until no prompt of the session is in the backlog, and nothing that opens its
// raider: a run's message leaves it after its transcript entry was written. Not for ever: of a run whose worker was lost
// nothing more may come for long.
func (f *FrontDoor) settled(ctx context.Context, meta subjects.SessionMeta) error {
	bound, cancel := context.WithTimeout(ctx, f.b.AckWait())
	defer cancel()
	for {
		left, opens, err := f.backlog(bound, meta, 0, 0)
		ours := func(w waitingPrompt) bool { return w.header.Session == meta.Session }
		if err == nil && !slices.ContainsFunc(left, ours) && !slices.ContainsFunc(opens, ours) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if bound.Err() != nil || !sleep(bound, 20*time.Millisecond) {
			return nil
		}
	}
}

// erase deletes what the fleet keeps of a session, its record last: until then another try
// finds it.
func (c *conn) erase(ctx context.Context, meta subjects.SessionMeta) error {
	f, fleet := c.f, c.f.fleet
	if err := f.settled(ctx, meta); err != nil {
		return err
	}
	for stream, subject := range map[string]string{
		fleet.EventsStream():     fleet.Event(meta.Session),
		fleet.TranscriptStream(): fleet.Transcript(meta.Session),
		fleet.LogsStream():       fleet.LogSession(meta.Session),
	} {
		if err := f.retry(ctx, func(ctx context.Context) error { return f.b.Cut(ctx, stream, bus.Cut{Subject: subject}) }); err != nil {
			return err
		}
	}
	stored, err := f.b.Payloads(ctx)
	if err != nil {
		return err
	}
	for _, p := range stored {
		kind, rest, _ := strings.Cut(p.Name, ".")
		if (kind != "event" && kind != "transcript") || !strings.HasPrefix(rest, string(meta.Session)+".") {
			continue
		}
		if err := f.b.DeletePayload(ctx, p.Name); err != nil {
			return err
		}
	}
	for _, key := range []string{
		subjects.AgentKey(meta.Principal, meta.Session), subjects.MetaKey(meta.Principal, meta.Session),
	} {
		if err := f.retry(ctx, func(ctx context.Context) error { return f.b.Delete(ctx, fleet.SessionsBucket(), key) }); err != nil {
			return err
		}
	}
	return nil
}
