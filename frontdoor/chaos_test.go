package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// TestAnyFault: a lane's owner that stores its events in any way that the protocol
// allows, links that break, and cancels at any moment. What each client sees is the same
// as ever: every prompt is answered once, after all of its updates and before the next
// turn's; with several clients, each sees the whole.
func TestAnyFault(t *testing.T) {
	t.Parallel()
	seeds := uint64(8)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			chaos(t, seed)
		})
	}
}

// chaosOwner serves a lane as a worker does, and badly.
type chaosOwner struct {
	*owner

	r *rand.Rand

	mu     sync.Mutex                     // guards the rest
	wrote  map[string]int                 // by prompt's text: how many updates it has
	marked map[subjects.PromptID]struct{} // asked to be cancelled
}

func chaos(t *testing.T, seed uint64) {
	t.Helper()
	s, ob := natstest.Bus(t)
	d := newDeaf(t, s.Addr().String())
	f := door(t, dial(t, "nats://"+d.l.Addr().String(), natstest.Layout(1)), nil)
	r := rand.New(rand.NewPCG(seed, 7))
	o := &chaosOwner{
		owner: &owner{t: t, b: ob, f: ob.Fleet(), epoch: 1, id: "w1-abc"}, r: rand.New(rand.NewPCG(seed, 8)),
		wrote: map[string]int{}, marked: map[subjects.PromptID]struct{}{},
	}
	c := connect(t, f, ConnOptions{})
	session := c.session("bjorn")
	watcher := connect(t, f, ConnOptions{})
	watcher.load(session)

	ctx, cancel := context.WithCancel(context.Background())
	var owning sync.WaitGroup
	owning.Go(func() { o.serve(ctx, subjects.SessionLane(session)) })
	defer owning.Wait()
	defer cancel()
	const prompts = 25
	for i := range prompts {
		c.prompt(session, fmt.Sprint(i), fmt.Sprint(i))
		switch r.IntN(6) {
		case 0:
			c.cancelSession(session)
		case 1:
			d.closeAll()
		case 2, 3:
			c.await(fmt.Sprintf("end %d ", i))
		}
	}
	for i := range prompts {
		c.await(fmt.Sprintf("end %d ", i))
	}
	cancel()
	owning.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, ended := map[string]int{}, map[string]string{}
	for _, line := range c.log {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "agent":
			name, n, _ := strings.Cut(rest, ".")
			if ended[name] != "" {
				t.Errorf("update %s came after its turn's response", rest)
			}
			seen[name]++
			if n != fmt.Sprint(seen[name]) {
				t.Errorf("update %s came as number %d", rest, seen[name])
			}
			var before int
			if _, err := fmt.Sscan(name, &before); err != nil {
				t.Errorf("update %q", rest)
			}
			for p := range before {
				if ended[fmt.Sprint(p)] == "" {
					t.Errorf("update %s came before the response to %d", rest, p)
				}
			}
		case "end":
			name, result, _ := strings.Cut(rest, " ")
			if ended[name] != "" {
				t.Errorf("%s was answered twice", name)
			}
			ended[name] = result
			o.mu.Lock()
			if seen[name] != o.wrote[name] {
				t.Errorf("%s was answered after %d of %d updates", name, seen[name], o.wrote[name])
			}
			o.mu.Unlock()
			if result != endTurn && result != stoppedTurn {
				t.Errorf("%s was answered %s", name, result)
			}
		}
	}
	if t.Failed() {
		t.Logf("received:\n%s", strings.Join(c.log, "\n"))
	}
	// The other client has seen the same, in the same order.
	want := agentLines(c.log)
	eventually(t, func() string {
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		if got := agentLines(watcher.log); got != want {
			return fmt.Sprintf("the other client saw\n%s\nwant\n%s", got, want)
		}
		return ""
	})
}

func agentLines(log []string) string {
	var out []string
	for _, line := range log {
		if strings.HasPrefix(line, "agent ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func (o *chaosOwner) serve(ctx context.Context, lane subjects.LaneID) {
	requests := o.controlled(lane)
	from := uint64(1)
	for ctx.Err() == nil {
		m, err := o.b.Next(ctx, o.f.BacklogStream(), o.f.BacklogLane("bjorn", lane), from)
		if err != nil {
			if !errors.Is(err, bus.ErrNotFound) && !bus.Unclear(err) && ctx.Err() == nil {
				o.t.Errorf("backlog: %v", err)
			}
			sleep(ctx, 2*time.Millisecond)
			continue
		}
		h, err := subjects.ParsePromptHeader(m.Header)
		if err != nil {
			o.t.Error(err)
			return
		}
		o.perform(ctx, &running{o: o.owner, h: h, seq: m.Seq, body: m.Data, lane: lane}, requests)
		from = m.Seq + 1
	}
}

// perform runs a prompt: its updates, its outcome.
func (o *chaosOwner) perform(ctx context.Context, r *running, requests <-chan subjects.ControlRequest) {
	var p struct {
		Prompt []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	}
	if err := json.Unmarshal(r.body, &p); err != nil {
		o.t.Error(err)
		return
	}
	name := p.Prompt[0].Text
	if o.r.IntN(8) == 0 {
		o.epoch, o.n = o.epoch+1, 0 // another owner
	}
	r.rec = subjects.RunRecord{
		State: subjects.RunRunning, Session: r.h.Session, Principal: r.h.Principal, Lane: r.lane,
		Owner: subjects.Owner{Instance: o.id, Epoch: o.epoch}, Attempt: 1,
	}
	rev, err := o.b.PutJSON(ctx, o.f.RunsBucket(), subjects.RunKey(r.h.Prompt), r.rec, 0, 0)
	if err != nil {
		var rec subjects.RunRecord
		if _, err := o.b.GetJSON(ctx, o.f.RunsBucket(), subjects.RunKey(r.h.Prompt), &rec); err == nil && rec.State == subjects.RunCancelled {
			r.tell(*rec.Outcome) // as a worker does
			o.must(o.b.DeleteMessage(context.WithoutCancel(ctx), o.f.BacklogStream(), r.seq))
		} else if ctx.Err() == nil {
			o.t.Errorf("%s: record %+v, %v", name, rec, err)
		}
		return
	}
	r.rev = rev
	n := o.r.IntN(12)
	o.mu.Lock()
	o.wrote[name] = n
	o.mu.Unlock()
	base := o.n
	o.n += uint64(n)
	text := func(i int) { r.textN(o.epoch, base+uint64(i), fmt.Sprintf("%s.%d", name, i)) }
	for next := 1; next <= n; {
		end := min(n, next+o.r.IntN(5))
		failed := 0
		for i := next; i <= end; i++ {
			if failed == 0 && o.r.IntN(4) == 0 {
				failed = i
			}
			if i != failed {
				text(i)
			}
		}
		for i := failed; failed > 0 && i <= end; i++ {
			text(i)
		}
		next = end + 1
	}
	state := subjects.RunCompleted
	for wait := o.r.IntN(3) == 0; wait; { // until it is cancelled, or long enough
		select {
		case req := <-requests:
			if req.Prompt == r.h.Prompt {
				state, wait = subjects.RunCancelled, false
			}
		case <-time.After(50 * time.Millisecond):
			wait = false
		case <-ctx.Done():
			return
		}
	}
	out := subjects.Outcome{State: state}
	if state == subjects.RunCompleted {
		out = ok()
	}
	if o.n == 0 {
		out.LastEpoch = o.epoch
	}
	out = r.record(out)
	switch luck := o.r.IntN(40); {
	case luck > 1:
		r.tell(out)
	case luck > 0:
		// Its owner dies here; the next one tells the outcome again, later.
		sleep(ctx, 300*time.Millisecond)
		r.tell(out)
		r.tell(out)
	default:
		// Never told: the record alone has it. Nothing of the lane runs before somebody
		// has told it, so here the client's look at the records has to come first.
		o.waitTold(ctx, r)
	}
	o.must(o.b.DeleteMessage(context.WithoutCancel(ctx), o.f.BacklogStream(), r.seq))
}

// waitTold leaves the front door the time to find the outcome in the record.
func (o *chaosOwner) waitTold(ctx context.Context, r *running) {
	sleep(ctx, 2*natstest.AckWait+time.Second)
	h := subjects.EventHeader{Kind: subjects.EventOutcome, Prompt: r.h.Prompt, LastEpoch: r.rec.Outcome.LastEpoch, LastN: r.rec.Outcome.LastN}
	_, err := o.b.Publish(context.WithoutCancel(ctx), natsMsg(o.f.Event(r.h.Session), h, object(r.rec.Outcome)), jetstream.WithMsgID(string(r.h.Prompt)+".outcome"))
	o.must(err)
}
