package frontdoor

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// Sessions that were opened, prompted and closed or deleted leave nothing behind on their
// connection: no goroutine, no subscription, no entry of a table, and in the buckets nothing
// that does not end by itself but the closed sessions.
func TestSessionsLeaveNothing(t *testing.T) {
	t.Parallel()
	pprof.Do(t.Context(), pprof.Labels("test", t.Name()), func(context.Context) { leaveNothing(t) })
}

func leaveNothing(t *testing.T) {
	t.Helper()
	const sessions = 200
	server, b := natstest.Bus(t)
	f, o := door(t, b, nil), &owner{t: t, b: b, f: b.Fleet(), epoch: 7, id: "w1-abc"}
	c := connect(t, f, ConnOptions{})
	sub, err := b.Conn().Subscribe(o.f.ControlAll(), func(m *nats.Msg) { _ = m.Respond([]byte(`{"decided":true}`)) })
	o.must(err)
	defer func() { _ = sub.Unsubscribe() }() // the connection's end does it as well
	seq, closed := uint64(0), map[string]bool{}
	use := func(i int) {
		t.Helper()
		o.n = 0 // counted by session
		s := c.session("bjorn")
		c.prompt(s, fmt.Sprint(i), "one")
		r := o.take("bjorn", seq+1)
		seq = r.seq
		r.says("x")
		if i%4 == 0 {
			c.cancelSession(s)
		}
		r.end(ok())
		c.await(fmt.Sprintf("end %d ", i))
		params := fmt.Sprintf(`{"sessionId":%q}`, s)
		if i%2 == 0 {
			c.call("session/delete", params)
			return
		}
		c.call("session/close", params)
		closed["$KV."+o.f.SessionsBucket()+"."+subjects.MetaKey("local", s)] = true
	}
	tables := func() (n int) {
		for conn := range f.conns {
			conn.mu.Lock()
			n += len(conn.held) + len(conn.left) + conn.requests
			conn.mu.Unlock()
		}
		return n
	}
	use(0) // what is made once is made
	use(1)
	goroutines, subscriptions := natstest.Goroutines(t, t.Name()), server.NumSubscriptions()
	for i := range sessions {
		use(i + 2)
	}
	natstest.Eventually(t, patience, "nothing is left", func() (bool, any) {
		g, s, n := natstest.Goroutines(t, t.Name()), server.NumSubscriptions(), tables()
		return g <= goroutines && s <= subscriptions && n == 0, fmt.Sprintf("%d goroutines (%d), %d subscriptions (%d), %d in tables", g, goroutines, s, subscriptions, n)
	})
	natstest.Eventually(t, patience, "records end by themselves", func() (bool, any) {
		var lasting []string
		for _, bucket := range []string{o.f.RunsBucket(), o.f.AsksBucket(), o.f.NodesBucket(), o.f.SessionsBucket()} {
			for _, s := range natstest.Lasting(t, b, "KV_"+bucket) {
				_, mark := strings.CutSuffix(s, ".cancel")
				ended := strings.HasPrefix(s, "$KV."+o.f.RunsBucket()) && !mark // which its worker gives an end
				if !closed[s] && !ended {
					lasting = append(lasting, s)
				}
			}
		}
		return len(lasting) == 0, lasting
	})
}
