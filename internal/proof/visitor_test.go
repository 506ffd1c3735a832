package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// visitor is an ACP client with a few sessions. It talks to any front door; when that one
// dies it goes on at another, with the same sessions.
type visitor struct {
	f      *fleet
	number int
	visits []*visit
	w      *wire // nil: not connected
	since  time.Time
	sent   int
}

// visit is one of its sessions.
type visit struct {
	id      subjects.SessionID // empty: not opened yet
	name    string             // raider or slot
	raider  raiderSpec
	lane    subjects.LaneID
	closing bool      // a close was asked for and not answered
	asked   time.Time // when a cancel or close was sent last
	// unsure: until then a prompt may be cancelled by what was asked for on a connection
	// that was given up: its front door may have been frozen or cut off before it read it.
	unsure time.Time
}

func (f *fleet) newVisitor(number int, names ...string) *visitor {
	f.tb.Helper()
	v := &visitor{f: f, number: number}
	for _, name := range names {
		at := slices.IndexFunc(raiders(), func(r raiderSpec) bool {
			base, slot := subjects.IsSlot(name)
			return string(r.name) == name || slot && string(r.name) == base
		})
		s := &visit{name: name, raider: raiders()[at]}
		if _, slot := subjects.IsSlot(name); slot {
			s.lane = slotLane(f.tb, name)
		}
		v.visits = append(v.visits, s)
	}
	return v
}

// run prompts until ctx ends.
func (v *visitor) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		rng := v.f.rng(laneOfVisitor, v.number, n)
		if v.connected(ctx, rng) {
			v.step(ctx, rng)
		}
		pause(ctx, time.Duration(rng.IntN(150))*time.Millisecond)
	}
}

// connected sees to a connection on which all sessions are open.
func (v *visitor) connected(ctx context.Context, rng *rand.Rand) bool {
	if v.w != nil {
		select {
		case <-v.w.dead:
			v.leave()
		default:
			return true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*v.f.ackWait)
	defer cancel()
	address := v.f.doors[rng.IntN(len(v.f.doors))].address()
	if address == "" {
		return false
	}
	w, err := dialWire(ctx, v.f.h, address)
	if err != nil {
		return false
	}
	v.w, v.since = w, time.Now()
	for _, s := range v.visits {
		if err := v.enter(ctx, s); err != nil {
			v.leave()
			return false
		}
	}
	return true
}

// enter opens a session, or loads the one there is.
func (v *visitor) enter(ctx context.Context, s *visit) error {
	if s.id == "" {
		result, err := v.w.call(ctx, "session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[],"raiderName":%q}`, v.f.dir, s.name))
		if err != nil {
			return err
		}
		var r struct {
			Session subjects.SessionID `json:"sessionId"`
		}
		if err := json.Unmarshal(result, &r); err != nil {
			return err
		}
		s.id = r.Session
		if s.lane == "" {
			s.lane = subjects.SessionLane(s.id)
		}
		return nil
	}
	if s.closing {
		if err := v.close(ctx, s); err != nil {
			return err
		}
	}
	err := v.w.load(ctx, s.id, v.f.dir, v.f.h.of(s.id, func(p *prompt) bool {
		return p.answer != nil && p.answer.state == subjects.RunCompleted
	}))
	if e, ok := errors.AsType[*wireError](err); ok && e.Code == codeNotFound {
		v.w.problem("session %s is lost: %v", s.id, err)
	}
	return err
}

const codeNotFound = -32002

// close closes a session: it covers all prompts that were sent.
func (v *visitor) close(ctx context.Context, s *visit) error {
	accepted := v.f.h.of(s.id, func(p *prompt) bool { return p.acked })
	v.f.h.cancel(s.id, "")
	s.closing, s.asked = true, time.Now()
	if _, err := v.w.call(ctx, "session/close", fmt.Sprintf(`{"sessionId":%q}`, s.id)); err != nil {
		return err
	}
	s.closing = false
	v.f.h.mu.Lock()
	defer v.f.h.mu.Unlock()
	v.f.h.closes = append(v.f.h.closes, closing{session: s.id, tags: accepted, at: shim.Now()})
	return nil
}

// leave gives the connection up, whatever is open on it.
func (v *visitor) leave() {
	v.w.ended()
	v.w = nil
	for _, s := range v.visits {
		// The front door lets go when it sees that its client has gone. It may be frozen, or
		// cut off, for two ack_waits.
		if s.asked.After(v.since) {
			s.unsure = time.Now().Add(4 * v.f.ackWait)
		}
	}
}

// maxVisits bounds a visitor's sessions: each is loaded again on every connection.
const maxVisits = 5

// step sends some prompts and does something about them.
func (v *visitor) step(ctx context.Context, rng *rand.Rand) {
	burst := 1
	if rng.IntN(5) < 2 {
		burst += 1 + rng.IntN(4)
	}
	ids := map[int]*prompt{}
	var s *visit
	for range burst {
		s = v.visits[rng.IntN(len(v.visits))]
		p := &prompt{
			tag: fmt.Sprintf("v%d.%d", v.number, v.sent), session: s.id, lane: s.lane,
			attempts: s.raider.attempts, cancelled: time.Now().Before(s.unsure),
		}
		v.sent++
		text := textOf(p, rng)
		if rng.IntN(60) == 0 { // over NATS' limit of a message: by way of the object store
			text += " " + strings.Repeat("x", large)
		}
		id, err := v.w.prompt(p, text)
		if err != nil {
			return
		}
		ids[id] = p
	}
	patient := rng.IntN(4) > 0
	switch what := rng.IntN(60); {
	case what < 6: // the session's prompts
		pause(ctx, time.Duration(rng.IntN(80))*time.Millisecond)
		v.f.h.cancel(s.id, "")
		s.asked = time.Now()
		_ = v.w.write(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s.id)
	case what < 9: // one prompt
		pause(ctx, time.Duration(rng.IntN(80))*time.Millisecond)
		last := slices.Max(slices.Collect(keys(ids)))
		v.f.h.cancel(ids[last].session, ids[last].tag)
		_ = v.w.write(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%d}}`, last)
	case what < 11:
		pause(ctx, time.Duration(rng.IntN(200))*time.Millisecond)
		if v.close(ctx, s) != nil || v.enter(ctx, s) != nil {
			v.leave()
			return
		}
	case what < 14:
		pause(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
		v.leave()
		return
	case what < 20 && len(v.visits) < maxVisits: // one more session, whose raider is opened ahead
		more := &visit{name: string(s.raider.name), raider: s.raider}
		if v.enter(ctx, more) != nil {
			v.leave()
			return
		}
		v.visits = append(v.visits, more)
	}
	if patient {
		v.await(ctx)
	}
}

// await waits until all turns are answered, the front door is gone, or ctx ends. It
// returns what is still open on a front door that lives.
func (v *visitor) await(ctx context.Context) []string {
	for v.w != nil {
		open, change := v.w.turnsOpen()
		if len(open) == 0 {
			return nil
		}
		select {
		case <-change:
		case <-v.w.dead:
			return nil
		case <-ctx.Done():
			return open
		}
	}
	return nil
}

// finish waits for what is open when everything is whole again: a front door that lives
// owes its clients an answer.
func (v *visitor) finish(ctx context.Context) {
	open := v.await(ctx)
	v.f.h.mu.Lock()
	defer v.f.h.mu.Unlock()
	for _, tag := range open {
		v.f.h.prompts[tag].open = true
	}
}

func keys[V any](m map[int]V) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
