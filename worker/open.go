package worker

import (
	"context"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// openAhead opens the session's raider without a prompt, so that its first one finds it warm
// and clients know its modes before. It is no promise and leaves nothing behind but the
// process and the session's record: no run record, no event, no outcome. What can't be
// opened the first prompt tells. An error means that the lane is lost.
func (l *lane) openAhead(h subjects.PromptHeader, seq uint64) error {
	r := &run{l: l, header: h, seq: seq, told: true, asks: map[subjects.AskID]*ask{}}
	r.ctx, r.stop = context.WithCancelCause(l.ctx)
	defer r.stop(nil)
	r.readAhead()
	l.setRun(r)
	defer l.setRun(nil)
	defer r.close()
	r.spawn(func() { // a worker that ends waits for prompts only
		select {
		case <-l.w.drain:
			r.stop(errWorkerStops)
		case <-r.ctx.Done():
		}
	})
	err := r.openRaider()
	if r.bound != nil {
		<-r.bound // who is told reads the session's record
	}
	if err != nil {
		// Its outcome is nobody's; but the lane may be lost.
		if _, err = r.unstarted(err); err != nil {
			return err
		}
	}
	l.after = seq
	err = l.do(func(ctx context.Context) error {
		return l.w.b.DeleteMessage(ctx, l.w.fleet.BacklogStream(), seq)
	})
	if err != nil {
		if l.ctx.Err() != nil {
			return err
		}
		l.w.log.Warn("an open stays in the backlog", "lane", string(l.id), "error", err)
	}
	told := subjects.ClientHeader{Op: subjects.ClientOpened, Call: string(h.Prompt), Session: h.Session}
	if h.Origin.FrontDoor != "" && h.Origin.Attachment != "" {
		// A lost one is not missed for long: the front door waits for a moment only.
		_ = l.w.b.Conn().PublishMsg(&nats.Msg{
			Subject: l.w.fleet.Client(h.Origin.FrontDoor, h.Origin.Attachment), Header: told.Header(),
		})
	}
	return nil
}

// openRaider starts the session's raider where that is wanted.
func (r *run) openRaider() error {
	l := r.l
	<-r.read
	if r.readErr != nil {
		if err := l.do(r.look); err != nil {
			return err
		}
	}
	// On a slot it would end another session's process.
	if _, own := l.id.Session(); !own || r.meta.State != subjects.SessionOpen {
		return nil
	}
	_, err := l.processFor(r)
	if err != nil && l.ctx.Err() == nil {
		l.w.log.Info("raider can't be opened ahead; the session's first prompt will tell", "raider", string(l.raider.Name), "session", string(r.header.Session))
	}
	return err
}
