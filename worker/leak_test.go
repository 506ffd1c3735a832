package worker

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// Sessions that were run and closed leave nothing behind at their worker: no goroutine, no
// subscription, no lane, no raider, and in the buckets nothing that does not end by itself.
func TestSessionsLeaveNothing(t *testing.T) {
	t.Parallel()
	pprof.Do(t.Context(), pprof.Labels("test", t.Name()), func(context.Context) { leaveNothing(t) })
}

func leaveNothing(t *testing.T) {
	t.Helper()
	const at = 8 // at once
	sessions := 200
	if testing.Short() {
		sessions = 40
	}
	server := natstest.Server(t)
	f := newFleetAt(t, server.ClientURL(), natstest.Layout(1), 5*time.Second)
	w := f.run(func(c *Config) { c.Capacity, c.MaxWarm = at, at })
	use := func(n int) {
		t.Helper()
		var open []*session
		var prompts []subjects.PromptID
		for range n {
			s := f.session(nil)
			open, prompts = append(open, s), append(prompts, s.prompt("say x"))
		}
		for i, s := range open {
			f.want(prompts[i], subjects.RunCompleted, "", 30*time.Second)
			l := s.warm(w)
			s.control(subjects.ControlRequest{Op: subjects.ControlClose})
			<-l.done
		}
	}
	use(at) // what is made once is made
	settled := func() (goroutines, subscriptions int) {
		t.Helper()
		natstest.Eventually(t, 20*time.Second, "no lane is left", func() (bool, any) { return w.tableSize() == 0 && !w.Busy(), w.Lanes() })
		return natstest.Goroutines(t, t.Name()), int(server.NumSubscriptions())
	}
	goroutines, subscriptions := settled()
	for range sessions / at {
		use(at)
	}
	natstest.Eventually(t, 20*time.Second, "nothing is left", func() (bool, any) {
		g, s := settled()
		return g <= goroutines && s <= subscriptions, fmt.Sprintf("%d goroutines (%d), %d subscriptions (%d)", g, goroutines, s, subscriptions)
	})
	for stream, but := range map[string]string{
		"KV_" + f.f.RunsBucket(): "", "KV_" + f.f.AsksBucket(): "", "KV_" + f.f.NodesBucket(): "", f.f.OwnStream(): "",
		f.f.ReadyStream(): "", f.f.BacklogStream(): "",
		"KV_" + f.f.SessionsBucket(): "$KV." + f.f.SessionsBucket() + ".", // the sessions
	} {
		natstest.Eventually(t, 20*time.Second, stream+" has only what ends", func() (bool, any) {
			var lasting []string
			for _, s := range natstest.Lasting(t, f.b, stream) {
				if but == "" || !strings.HasPrefix(s, but) {
					lasting = append(lasting, s)
				}
			}
			return len(lasting) == 0, lasting
		})
	}
}
