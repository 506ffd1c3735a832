package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

const stoppedTurn = `{"stopReason":"cancelled"}`

// Prompt and cancel in one read: cancelled, and nothing reaches the fleet.
func TestPromptAndCancelInOneRead(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	setup := connect(t, f, ConnOptions{})
	s := setup.session("bjorn")
	lines := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}
{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":` + promptParams(s, "never") + `}
{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + string(s) + `"}}
`
	mine, theirs := net.Pipe()
	defer func() { _ = mine.Close() }()
	var served sync.WaitGroup
	served.Go(func() { _ = f.Serve(t.Context(), strings.NewReader(lines), theirs, ConnOptions{}) })
	text, err := io.ReadAll(mine)
	o.must(err)
	served.Wait()
	if !strings.Contains(string(text), `"id":2,"result":`+stoppedTurn) {
		t.Errorf("answered %s", text)
	}
	if n := o.backlog(); n != 0 {
		t.Errorf("%d prompts in the backlog", n)
	}
	if last, err := o.b.LastSeq(t.Context(), o.f.BacklogStream()); err != nil || last != 0 {
		t.Errorf("the backlog had %d prompts, %v", last, err)
	}
}

func TestCancelWaiting(t *testing.T) {
	t.Parallel()
	f, o, c, s, r := begun(t)
	control := o.controlled(r.lane)
	c.prompt(s, "2", "two")
	second := o.see("bjorn", r.seq+1)
	other := connect(t, f, ConnOptions{})
	other.prompt(s, "3", "three")
	third := o.see("bjorn", second.seq+1)

	c.cancelSession(s)
	c.await("end 2")
	other.await("end 3")
	if req := next(t, control); req.Op != subjects.ControlCancel || req.Prompt != r.h.Prompt || req.Session != s {
		t.Errorf("control request %+v", req)
	}
	eventually(t, func() string {
		if n := o.backlog(); n != 1 {
			return fmt.Sprintf("%d messages in the backlog", n)
		}
		return ""
	})
	for _, waiting := range []*running{second, third} {
		var rec subjects.RunRecord
		_, err := o.b.GetJSON(t.Context(), o.f.RunsBucket(), subjects.RunKey(waiting.h.Prompt), &rec)
		o.must(err)
		if rec.State != subjects.RunCancelled || rec.Outcome == nil || rec.Owner.Instance != "" {
			t.Errorf("record %+v", rec)
		}
	}
	for _, p := range []subjects.PromptID{r.h.Prompt, second.h.Prompt, third.h.Prompt} {
		var mark subjects.CancelMark
		if _, err := o.b.GetJSON(t.Context(), o.f.RunsBucket(), subjects.CancelKey(p), &mark); err != nil {
			t.Errorf("no mark: %v", err)
		}
	}
	// Repeated until the outcome is there.
	next(t, control)
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	c.await("end 1 " + stoppedTurn)

	// What comes after is not hit.
	c.prompt(s, "4", "four")
	r = o.take("bjorn", r.seq+1)
	if r.h.Prompt == second.h.Prompt {
		t.Fatal("a cancelled prompt is still in the backlog")
	}
	r.says("calm")
	r.end(ok())
	c.await("end 4 " + endTurn)
}

func TestCancelRequest(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.conn.Call(ctx, "session/prompt", json.RawMessage(promptParams(s, "one")))
		ended <- err
	}()
	r := o.take("bjorn", 1)
	control := o.controlled(r.lane)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	next(t, control)
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	// With an id session/cancel is answered, also with nothing to cancel.
	if got := string(c.call("session/cancel", fmt.Sprintf(`{"sessionId":%q}`, s))); got != `{}` {
		t.Errorf("session/cancel answered %s", got)
	}
}

// A cancel that was taken while NATS was away is not forgotten: it is carried out when
// there is a link again, and repeated until the prompt has ended.
func TestCancelWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	s, ob := natstest.Bus(t)
	d := newDeaf(t, s.Addr().String())
	tries := &logged{text: "prompt not cancelled yet", seen: make(chan struct{}, 1)}
	f := door(t, dial(t, "nats://"+d.l.Addr().String(), natstest.Layout(1)), func(c *Config) { c.Logger = slog.New(tries) })
	o := &owner{t: t, b: ob, f: ob.Fleet(), epoch: 7, id: "w1-abc"}
	c := connect(t, f, ConnOptions{})
	session := c.session("bjorn")
	c.prompt(session, "1", "one")
	r := o.take("bjorn", 1)
	r.says("a")
	c.await("agent a")
	control := o.controlled(r.lane)

	d.set(true)
	c.cancelSession(session)
	next(t, tries.seen) // all that one try has is used up
	d.set(false)
	for range 2 {
		if req := next(t, control); req.Op != subjects.ControlCancel || req.Prompt != r.h.Prompt {
			t.Errorf("control request %+v", req)
		}
	}
	var mark subjects.CancelMark
	_, err := ob.GetJSON(t.Context(), o.f.RunsBucket(), subjects.CancelKey(r.h.Prompt), &mark)
	o.must(err)
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	c.await("end 1 " + stoppedTurn)
}

// logged is a log that signals each line with a text.
type logged struct {
	slog.Handler

	text string
	seen chan struct{} // capacity 1
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }

func (l *logged) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.text {
		signal(l.seen)
	}
	return nil
}

func TestCancelStorm(t *testing.T) {
	t.Parallel()
	_, o, c, s, r := begun(t)
	for range 100 {
		c.cancelSession(s)
	}
	next(t, o.controlled(r.lane))
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	c.await("end 1 " + stoppedTurn)
	for range 100 {
		c.cancelSession(s)
	}
	c.prompt(s, "2", "two")
	r = o.take("bjorn", r.seq+1)
	r.end(ok())
	c.await("end 2 " + endTurn)
}

// A client that goes leaves its prompts; with drop those of its own that wait are gone.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{OnDisconnectKeep, OnDisconnectDrop} {
		f, o := setup(t, func(c *Config) { c.OnDisconnect = mode })
		c, other := connect(t, f, ConnOptions{GoneAtEOF: true}), connect(t, f, ConnOptions{})
		s := c.session("bjorn")
		c.prompt(s, "1", "one")
		r := o.take("bjorn", 1)
		r.says("a")
		c.await("agent a")
		c.prompt(s, "2", "two")
		second := o.see("bjorn", r.seq+1)
		other.prompt(s, "3", "three")
		o.see("bjorn", second.seq+1)
		c.stop()
		want := map[string]int{OnDisconnectKeep: 3, OnDisconnectDrop: 2}[mode]
		eventually(t, func() string {
			if n := o.backlog(); n != want {
				return fmt.Sprintf("%s: %d messages in the backlog, want %d", mode, n, want)
			}
			return ""
		})
		var mark subjects.CancelMark
		if _, err := o.b.GetJSON(t.Context(), o.f.RunsBucket(), subjects.CancelKey(r.h.Prompt), &mark); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("%s: the running prompt was cancelled: %v", mode, err)
		}
		other.cancelSession(s)
		other.await("end 3")
	}
}

// The end of the input: what was read is answered; a turn gets its grace.
func TestEndOfInput(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	s := connect(t, f, ConnOptions{}).session("bjorn")
	lines := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}
{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/x"}}
{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":` + promptParams(s, "one") + `}`
	other := connect(t, f, ConnOptions{})
	for i, grace := range []time.Duration{-1, 50 * time.Millisecond} {
		mine, theirs := net.Pipe()
		var text []byte
		var served sync.WaitGroup
		served.Go(func() { text, _ = io.ReadAll(mine) })
		served.Go(func() {
			if err := f.Serve(t.Context(), strings.NewReader(lines), theirs, ConnOptions{EOFGrace: grace}); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
		r := o.take("bjorn", 1)
		want := endTurn
		if i == 0 {
			r.says("text")
			r.end(ok())
		} else {
			other.prompt(s, "other", "of another client")
			next(t, o.controlled(r.lane))
			r.end(subjects.Outcome{State: subjects.RunCancelled})
			want = stoppedTurn
		}
		served.Wait()
		for _, w := range []string{`"id":1,"result"`, `"id":2,"result":{"sessionId"`, `"id":"p","result":` + want} {
			if !strings.Contains(string(text), w) {
				t.Errorf("no %s in %s", w, text)
			}
		}
	}
	r := o.take("bjorn", 1)
	r.end(ok())
	other.await("end other " + endTurn)
}
