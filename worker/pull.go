package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// baton is a baton in this worker's hands.
type baton struct {
	raider *Raider
	class  subjects.Class
	lane   subjects.LaneID
	seq    uint64
	// reply extends the baton: whoever has it can.
	reply string
}

// pullExpiry is how long a pull request waits at the server.
const pullExpiry = 30 * time.Second

// heartbeat is how often the server says that a request waits there. One of which nothing
// is heard for three of them is sent again: the server loses it, without a word, when the
// consumer is deleted or changes its leader just then.
func (p *puller) heartbeat() time.Duration { return min(pullExpiry/6, p.w.b.AckWait()/6) }

// puller asks for batons, one at a time for each free place.
type puller struct {
	w     *Worker
	order []*Raider
	next  int // where the rotation goes on
	inbox string
	msgs  chan *nats.Msg
	open  map[int]request // requests that wait at the server, by raider
	away  map[int]backOff // of raiders whose consumer can't be asked, by raider
	sent  uint64
}

// backOff keeps from asking a consumer again and again that can't answer: it has been
// deleted, or has no leader.
type backOff struct {
	until time.Time
	pause time.Duration
}

// The first and the longest pause before such a consumer is asked again.
const (
	firstBackOff = 20 * time.Millisecond
	maxBackOff   = time.Second
)

// request is a pull request that has not been answered.
type request struct {
	inbox string // a status comes on it; a baton comes on its own subject
	until time.Time
}

// pull hands out batons until ctx ends; what it starts runs on work.
func (w *Worker) pull(ctx, work context.Context) {
	p := &puller{w: w, msgs: make(chan *nats.Msg, 1024), open: map[int]request{}, away: map[int]backOff{}, inbox: w.b.Conn().NewInbox()}
	for i := range w.c.Raiders {
		p.order = append(p.order, w.raiders[w.c.Raiders[i].Name])
	}
	sub, err := w.b.Conn().ChanSubscribe(p.inbox+".*", p.msgs)
	if err != nil {
		w.log.Error("can't subscribe for batons", "error", err)
		return
	}
	for ctx.Err() == nil {
		if w.b.WaitUp(ctx) != nil {
			break
		}
		if p.rotate(ctx, work) {
			continue
		}
		p.wait(ctx, work)
	}
	_ = sub.Unsubscribe()
	// A baton that arrived at the last moment would otherwise lie for an ack_wait.
	for {
		select {
		case m := <-p.msgs:
			if bt, ok := p.parse(m); ok {
				w.giveBack(work, bt)
			}
		case bt := <-w.given:
			w.giveBack(work, bt)
		default:
			return
		}
	}
}

// rotate asks each raider's consumer once, without waiting, from where it stopped. It
// returns true when a baton came: with one place and many raiders each gets its turn. A
// raider whose long request still waits has no baton: the server would have sent it.
func (p *puller) rotate(ctx, work context.Context) bool {
	for range p.order {
		i := p.next
		p.next = (p.next + 1) % len(p.order)
		if _, waits := p.open[i]; waits || p.isAway(i, time.Now()) || !p.w.places.free(p.order[i]) {
			continue
		}
		if !p.request(i, true, p.w.b.AckWait()/6) {
			return false
		}
		timeout := time.NewTimer(p.w.b.AckWait() / 6)
		for _, waits := p.open[i]; waits; _, waits = p.open[i] {
			select {
			case m := <-p.msgs:
				if p.handle(work, m) && p.open[i].inbox == "" {
					timeout.Stop()
					return true
				}
			case <-timeout.C:
				// No answer: it may still come, and is then handled like any other.
				delete(p.open, i)
			case <-ctx.Done():
				timeout.Stop()
				return false
			}
		}
		timeout.Stop()
	}
	return false
}

// wait keeps a long request open for each raider with room and handles what comes.
func (p *puller) wait(ctx, work context.Context) {
	for {
		now, pause := time.Now(), p.heartbeat()
		for i, r := range p.order {
			if o, ok := p.open[i]; ok && now.Before(o.until) || !p.w.places.free(r) {
				continue
			}
			if p.isAway(i, now) {
				pause = min(pause, p.away[i].until.Sub(now))
				continue
			}
			if !p.request(i, false, pullExpiry) {
				return
			}
		}
		again := time.NewTimer(pause)
		link := p.w.b.Link()
		select {
		case m := <-p.msgs:
			p.handle(work, m)
		case bt := <-p.w.given:
			p.hand(work, bt)
		case <-p.w.places.freed:
			again.Stop()
			return // a place: whoever waited longest first
		case <-link.Done():
			clear(p.open) // requests die with the link
			clear(p.away)
			again.Stop()
			return
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// handle does what a message asks for; true when it was a baton.
func (p *puller) handle(work context.Context, m *nats.Msg) bool {
	if bt, ok := p.parse(m); ok {
		p.hand(work, bt)
		return true
	}
	for i, o := range p.open {
		if o.inbox != m.Subject {
			continue
		}
		if m.Header.Get("Status") == "100" {
			o.until = time.Now().Add(3 * p.heartbeat())
			p.open[i] = o
			break
		}
		delete(p.open, i)
		switch m.Header.Get("Status") {
		case "404", "408": // nothing there, or expired
			delete(p.away, i)
		default:
			// No responders (503) or a conflict (409): no consumer, or none with a leader.
			p.turnedAway(i)
		}
	}
	return false
}

// isAway says whether a raider's consumer is not to be asked now.
func (p *puller) isAway(i int, now time.Time) bool { return now.Before(p.away[i].until) }

// turnedAway lets a consumer alone for a while, longer each time.
func (p *puller) turnedAway(i int) {
	pause := min(max(2*p.away[i].pause, firstBackOff), maxBackOff)
	p.away[i] = backOff{time.Now().Add(pause), pause}
	signal(p.w.unserved)
}

// request sends a pull request for one baton.
func (p *puller) request(i int, noWait bool, expires time.Duration) bool {
	body := struct {
		Batch     int           `json:"batch"`
		NoWait    bool          `json:"no_wait,omitempty"`
		Expires   time.Duration `json:"expires,omitempty"`
		Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	}{Batch: 1, NoWait: noWait}
	believed := expires
	if !noWait {
		body.Expires, body.Heartbeat = expires, p.heartbeat()
		believed = 3 * p.heartbeat()
	}
	text, err := json.Marshal(body)
	if err != nil {
		return false
	}
	p.sent++
	o := request{inbox: fmt.Sprintf("%s.%d", p.inbox, p.sent), until: time.Now().Add(believed)}
	consumer := p.w.b.Layout().ReadyConsumer(p.order[i].Name, subjects.AnyClass, 0).Name
	subject := "$JS.API.CONSUMER.MSG.NEXT." + p.w.fleet.ReadyStream() + "." + consumer
	if p.w.b.Conn().PublishRequest(subject, o.inbox, text) != nil {
		return false
	}
	p.open[i] = o
	return true
}

// parse tells a baton from a status message.
func (p *puller) parse(m *nats.Msg) (baton, bool) {
	if m.Reply == "" {
		return baton{}, false
	}
	meta, err := m.Metadata()
	if err != nil {
		return baton{}, false
	}
	name, class, lane, err := p.w.fleet.ParseReady(m.Subject)
	if err != nil {
		p.w.log.Error("baton on a subject that is none", "subject", m.Subject, "error", err)
		return baton{}, false
	}
	r := p.w.raiders[name]
	if r == nil {
		return baton{}, false
	}
	for i, o := range p.order {
		if o == r {
			delete(p.open, i)
			delete(p.away, i)
		}
	}
	return baton{raider: r, class: class, lane: lane, seq: meta.Sequence.Stream, reply: m.Reply}, true
}

// hand gives a baton a place and its own goroutine, or gives it back.
func (p *puller) hand(work context.Context, bt baton) {
	w := p.w
	if l := w.owned(bt.lane); l != nil && l.adopt(bt) {
		// A baton of our own lane that came again, because it was extended late: it needs
		// no place, and no warm lane has to go for it.
		return
	}
	if !w.places.take(bt.raider) {
		w.all.Go(func() { w.giveBack(work, bt) })
		return
	}
	w.all.Go(func() {
		kept := w.serveBaton(work, bt)
		if !kept {
			w.places.give(bt.raider)
		}
	})
}
