package frontdoor

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// attachment is a client's hold on a session. It is there from the first request that
// names the session, before the session's record has been read, so that a cancel that
// comes in the same read as its prompt finds the prompt.
type attachment struct {
	c       *conn
	f       *FrontDoor
	id      subjects.Attachment
	session subjects.SessionID
	log     *slog.Logger

	ctx    context.Context //nolint:containedctx // the attachment's life
	end    context.CancelFunc
	opened chan struct{} // closed when meta is set, or failed
	gone   chan struct{} // closed when nothing more of it is written
	before chan struct{} // gone of the connection's earlier hold on the session, nil for none
	// known is closed when session/new has been answered; nil where the client knows the
	// session's id already.
	known  chan struct{}
	follow *follower
	pokes  chan struct{} // capacity 1: look at the run records
	waits  chan struct{} // capacity 1: a prompt was accepted and may have to wait

	mu         sync.Mutex // guards the rest
	opening    bool
	failed     error // why it could not be opened
	over       bool  // takes no more turns
	meta       subjects.SessionMeta
	turns      []*turn                    // open ones in the order of arrival
	answered   []subjects.PromptID        // of turns that were answered here, the last ones
	queue      []*turn                    // of turns, not taken by the submitter
	submitting bool                       // the submitter runs
	wanted     bool                       // a session/cancel has not been carried out yet
	cancelling bool                       // the canceller runs
	cancelled  map[subjects.PromptID]bool // prompts whose cancel is being carried out
	asks       map[subjects.AskID]*shownAsk
	attached   *nats.Subscription
	asked      *nats.Subscription            // for what raiders want of the client
	calls      map[string]context.CancelFunc // of raiders, that the client works on
	detached   bool
	told       subjects.Settings // modes and options that the client was told last
}

// attach returns the connection's hold on the session, a new one if there is none.
func (c *conn) attach(session subjects.SessionID) (*attachment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.held[session]; a != nil {
		return a, nil
	}
	if len(c.held) >= maxSessions {
		return nil, &rpc.Error{Code: rpc.CodeInternal, Message: "this connection holds too many sessions"}
	}
	if c.closing {
		return nil, rpc.ErrClosed
	}
	a := &attachment{
		c: c, f: c.f, id: subjects.NewAttachment(), session: session,
		log:    c.log.With("session", string(session)),
		opened: make(chan struct{}), gone: make(chan struct{}), before: c.left[session], pokes: make(chan struct{}, 1), waits: make(chan struct{}, 1),
		cancelled: map[subjects.PromptID]bool{}, asks: map[subjects.AskID]*shownAsk{}, calls: map[string]context.CancelFunc{}, detached: c.deaf,
	}
	a.ctx, a.end = context.WithCancel(c.ctx)
	a.follow = newFollower(a)
	c.held[session] = a
	return a, nil
}

// find returns the hold on a session, nil for none.
func (c *conn) find(session subjects.SessionID) *attachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[session]
}

// open starts the attachment's goroutines, once, and says whether it did. meta is nil when
// it has to be read; fresh says that the session has no events yet; first, if not nil, is
// shown before anything else.
func (a *attachment) open(meta *subjects.SessionMeta, fresh bool, first *loading) bool {
	a.mu.Lock()
	if a.opening {
		a.mu.Unlock()
		return false
	}
	a.opening = true
	a.mu.Unlock()
	a.c.spawn(func() {
		defer a.leave()
		ctx := a.ctx
		if a.before != nil {
			// Two at once would write the session's updates twice, and mixed.
			select {
			case <-a.before:
			case <-ctx.Done():
				a.abandon(ctx.Err())
				return
			}
		}
		if meta == nil {
			m, _, err := a.c.meta(ctx, string(a.session))
			if err == nil && m.State != subjects.SessionOpen {
				err = sessionClosed(a.session)
			}
			if err != nil {
				a.abandon(err)
				return
			}
			meta = &m
		}
		a.mu.Lock()
		a.meta = *meta
		a.mu.Unlock()
		if err := a.follow.start(ctx, fresh); err != nil {
			a.abandon(err)
			return
		}
		close(a.opened)
		a.announce()
		a.startSubmitter()
		a.startCanceller()
		if a.known != nil {
			select {
			case <-a.known:
			case <-ctx.Done():
				return
			}
		}
		a.follow.run(ctx, first)
	})
	return true
}

// leave ends the attachment. Turns that are open go unanswered: the connection ends, or
// they were answered before.
func (a *attachment) leave() {
	a.end()
	a.detach()
	a.follow.unsubscribe()
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	close(a.gone)
	if a.c.left[a.session] == a.gone {
		delete(a.c.left, a.session)
	}
}

// forget takes the attachment out of the connection's table. The session's next one waits
// until it is gone.
func (a *attachment) forget() {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if a.c.held[a.session] == a {
		delete(a.c.held, a.session)
		a.c.left[a.session] = a.gone
	}
}

// abandon refuses all turns of a session that can't be had.
func (a *attachment) abandon(err error) {
	a.forget()
	a.mu.Lock()
	turns := slices.Clone(a.turns)
	a.queue, a.failed, a.over = nil, err, true
	a.mu.Unlock()
	close(a.opened)
	for _, t := range turns {
		a.closeTurn(t, func(r *rpc.Request) { answerError(a.log, r, a.f.fault(err)) })
	}
}

// wait blocks until the attachment is open.
func (a *attachment) wait(ctx context.Context) error {
	select {
	case <-a.opened:
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce answers workers that ask whether a client is attached, until detach.
func (a *attachment) announce() {
	reply := object(subjects.AttachedReply{FrontDoor: a.f.instance, Attachments: []subjects.Attachment{a.id}})
	sub, err := a.f.b.Conn().Subscribe(a.f.fleet.Attached(a.session), func(m *nats.Msg) {
		if err := m.Respond(reply); err != nil {
			a.log.Debug("attachment not told", "error", err)
		}
	})
	if err != nil {
		a.log.Warn("attachment can't be told", "error", err)
		return
	}
	asked, err := a.f.b.Conn().Subscribe(a.f.fleet.Client(a.f.instance, a.id), a.fromRaider)
	if err != nil {
		a.log.Warn("the client can't be asked", "error", err)
	}
	a.mu.Lock()
	a.attached, a.asked = sub, asked
	gone := a.detached
	a.mu.Unlock()
	if gone || a.ctx.Err() != nil {
		a.detach()
	}
}

// detach says that nobody answers here any more.
func (a *attachment) detach() {
	a.mu.Lock()
	subs := []*nats.Subscription{a.attached, a.asked}
	a.attached, a.asked, a.detached = nil, nil, true
	a.mu.Unlock()
	for _, sub := range subs {
		if sub == nil {
			continue
		}
		if err := sub.Unsubscribe(); err != nil {
			a.log.Debug("subscription not ended", "error", err)
		}
	}
}

// notify writes session updates. A client that can't be written to has gone; its turns
// are followed all the same until the connection ends.
func (a *attachment) notify(params ...json.RawMessage) {
	if err := a.c.rpc.NotifyAll("session/update", params); err != nil {
		a.log.Debug("update not sent", "error", err)
	}
}

func (a *attachment) openTurns() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.turns)
}

// waitingTurns are the turns that have been published and not been seen to start.
func (a *attachment) waitingTurns() []*turn {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*turn
	for _, t := range a.turns {
		if t.published && !t.started {
			out = append(out, t)
		}
	}
	return out
}

// turn returns the open turn of a prompt, nil for none.
func (a *attachment) turn(p subjects.PromptID) *turn {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.turns, func(t *turn) bool { return t.prompt == p })
	if i < 0 {
		return nil
	}
	return a.turns[i]
}

// signal wakes the owner of a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
