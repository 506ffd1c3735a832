package frontdoor

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// openFor is how long session/new waits for the session's raider to be opened: after it the
// client is told what is known of the raider from earlier sessions.
const openFor = 2 * time.Second

// openAhead has the session's raider opened, and returns when it is, or can't be, or when
// that takes too long. It is no promise: what fails here the first prompt tells. The
// attachment is there, so that what the raider says is not missed.
func (a *attachment) openAhead(ctx context.Context, meta subjects.SessionMeta) {
	ctx, cancel := context.WithTimeout(ctx, a.f.openFor)
	defer cancel()
	id := subjects.NewPrompt()
	opened := make(chan struct{}, 1)
	sub, err := a.f.b.Conn().Subscribe(a.f.fleet.Client(a.f.instance, a.id), func(m *nats.Msg) {
		if h, err := subjects.ParseClientHeader(m.Header); err == nil && h.Op == subjects.ClientOpened && h.Call == string(id) {
			signal(opened)
		}
	})
	if err != nil {
		a.log.Debug("raider not opened ahead", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection's end does it as well
	h := subjects.PromptHeader{
		Prompt: id, Session: a.session, Principal: a.c.principal, Kind: subjects.KindOpen, Priority: "normal",
		Origin: subjects.Origin{FrontDoor: a.f.instance, Attachment: a.id},
		Client: string(a.c.can.Load().raw),
	}
	bound, done := a.f.b.Bound(ctx, 0)
	seq, err := a.f.b.Publish(bound, &nats.Msg{
		Subject: a.f.fleet.Backlog(meta.Raider, meta.Lane, meta.Principal), Header: h.Header(),
	}, jetstream.WithMsgID(string(id)))
	done()
	if err != nil {
		a.log.Debug("raider not opened ahead", "error", err)
		return // one that was stored all the same is opened when the lane has its first prompt
	}
	if err := a.f.baton(ctx, meta); err != nil {
		a.log.Debug("baton of an open not published", "error", err)
	}
	select {
	case <-opened:
		return
	case <-ctx.Done():
	}
	// Nothing is to wait for a place that no prompt wants. One that is being opened goes on.
	bound, done = a.f.b.Bound(context.WithoutCancel(ctx), 0)
	defer done()
	if err := a.f.b.DeleteMessage(bound, a.f.fleet.BacklogStream(), seq); err != nil && !errors.Is(err, bus.ErrNotFound) {
		a.log.Debug("an open stays in the backlog", "error", err)
	}
}
