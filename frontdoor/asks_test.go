package frontdoor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

const askParams = `{"sessionId":"S","toolCall":{"toolCallId":"t","title":"rm"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}`

// asks writes an ask event.
func (r *running) asks() subjects.AskBody {
	r.o.t.Helper()
	r.o.n++
	b := subjects.AskBody{
		Ask: subjects.NewAsk(), Session: r.h.Session, Principal: r.h.Principal, Lane: r.lane, Prompt: r.h.Prompt,
		Owner: subjects.Owner{Instance: r.o.id, Epoch: r.o.epoch}, Request: json.RawMessage(askParams), Time: time.Now(),
	}
	r.event(r.o.epoch, r.o.n, subjects.EventAsk, object(b))
	return b
}

func (r *running) askDone(a subjects.AskID) {
	r.o.t.Helper()
	r.o.n++
	r.event(r.o.epoch, r.o.n, subjects.EventAskDone, object(subjects.AskDone{Ask: a, Outcome: json.RawMessage(refused), Why: "answered"}))
}

// question is the client's n-th request_permission.
func (c *client) question(n int) *rpc.Request {
	c.t.Helper()
	eventually(c.t, func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.asked) > n {
			return ""
		}
		return fmt.Sprintf("%d questions were asked", len(c.asked))
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[n]
}

func TestAskAnswers(t *testing.T) {
	t.Parallel()
	_, o, c, _, r := begun(t)
	control := o.controlled(r.lane)
	chosen := `{"outcome":"selected","optionId":"y","x":1.0}`
	cases := []struct {
		reply func(*rpc.Request) error
		want  string
	}{
		{func(q *rpc.Request) error { return q.Reply(json.RawMessage(`{"outcome":` + chosen + `}`)) }, chosen},
		{func(q *rpc.Request) error { return q.Reply(json.RawMessage(`{"outcome":{"outcome":"cancelled"}}`)) }, refused},
		{func(q *rpc.Request) error { return q.Reply(json.RawMessage(`{}`)) }, refused},
		{func(q *rpc.Request) error { return q.Reply(json.RawMessage(`null`)) }, refused},
		{func(q *rpc.Request) error { return q.Reply(json.RawMessage(`{"outcome":"y"}`)) }, refused},
		{func(q *rpc.Request) error { return q.ReplyError(&rpc.Error{Code: -32601, Message: "no"}) }, refused},
	}
	for i, tc := range cases {
		ask := r.asks()
		q := c.question(i)
		if q.Method != "session/request_permission" || string(q.Params) != askParams {
			t.Fatalf("asked %s %s", q.Method, q.Params)
		}
		o.must(tc.reply(q))
		req := next(t, control)
		if req.Op != subjects.ControlAnswer || req.Ask != ask.Ask || string(req.Outcome) != tc.want || req.By != string(r.h.Origin.Attachment) {
			t.Errorf("case %d: control request %+v with %s", i, req, req.Outcome)
		}
		r.askDone(ask.Ask)
	}
	r.end(ok())
	c.await("end 1")
}

// Decided elsewhere, or over with its turn: the question is taken back.
func TestAskWithdrawn(t *testing.T) {
	t.Parallel()
	_, _, c, _, r := begun(t)
	ask := r.asks()
	c.question(0)
	r.askDone(ask.Ask)
	c.await("withdrawn")
	r.asks()
	c.question(1)
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	eventually(t, func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for _, line := range c.log {
			if line == "withdrawn" {
				n++
			}
		}
		if n == 2 {
			return ""
		}
		return fmt.Sprintf("%d questions were taken back", n)
	})
	c.await("end 1")
}

// brokenPipe is a client's end that can't be written to any more, once it is broken. What
// the client says is read all the same.
type brokenPipe struct {
	net.Conn
	broken atomic.Bool
	tried  chan struct{}
}

func (p *brokenPipe) Write(b []byte) (int, error) {
	if !p.broken.Load() {
		return p.Conn.Write(b)
	}
	if bytes.Contains(b, []byte("session/request_permission")) {
		close(p.tried)
	}
	return 0, syscall.EPIPE
}

// A client that is going is not one that refuses: the question stays for the others.
func TestAskOfAClientThatGoes(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	mine, theirs := net.Pipe()
	door := &brokenPipe{Conn: theirs, tried: make(chan struct{})}
	c := connectOver(t, f, ConnOptions{GoneAtEOF: true}, mine, door)
	s := c.session("bjorn")
	c.prompt(s, "1", "one")
	r := o.take("bjorn", 1)
	control := o.controlled(r.lane)
	door.broken.Store(true)
	ask := r.asks()
	next(t, door.tried)
	select {
	case req := <-control:
		t.Errorf("the door answered for it: %+v with %s", req, req.Outcome)
	case <-time.After(300 * time.Millisecond):
	}
	c.stop()

	// One that comes is asked, and its answer counts.
	c = connect(t, f, ConnOptions{})
	c.call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/w","mcpServers":[]}`, s))
	o.must(c.question(0).Reply(json.RawMessage(`{"outcome":{"outcome":"selected","optionId":"y"}}`)))
	if req := next(t, control); req.Ask != ask.Ask || !strings.Contains(string(req.Outcome), "selected") {
		t.Errorf("control request %+v with %s", req, req.Outcome)
	}
	r.askDone(ask.Ask)
	r.end(ok())
}

// The answer is repeated until an owner has it.
func TestAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	_, o, c, _, r := begun(t)
	r.asks()
	o.must(c.question(0).Reply(json.RawMessage(`{"outcome":{"outcome":"selected","optionId":"y"}}`)))
	tries := 0
	got := make(chan struct{})
	sub, err := o.b.Conn().Subscribe(o.f.Control(r.lane), func(m *nats.Msg) {
		if tries++; tries == 1 {
			_ = m.Respond([]byte(`{"error":"not now"}`))
			return
		}
		_ = m.Respond([]byte(`{}`))
		close(got)
	})
	o.must(err)
	<-got
	o.must(sub.Unsubscribe())
	r.end(ok())
	c.await("end 1")
}

// The session's attachments are told while they are there.
func TestAttached(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{GoneAtEOF: true})
	s := c.session("bjorn")
	ask := func() (subjects.AttachedReply, error) {
		var r subjects.AttachedReply
		m, err := o.b.Conn().Request(o.f.Attached(s), nil, time.Second)
		if err == nil {
			err = json.Unmarshal(m.Data, &r)
		}
		return r, err
	}
	eventually(t, func() string {
		r, err := ask()
		if err == nil && r.FrontDoor == f.Instance() && len(r.Attachments) == 1 {
			return ""
		}
		return fmt.Sprintf("%+v, %v", r, err)
	})
	c.stop()
	if r, err := ask(); err == nil {
		t.Errorf("still attached: %+v", r)
	}
}
