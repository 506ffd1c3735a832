package admin

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// log stores a line as a worker does.
func (w *world) log(worker subjects.Instance, s subjects.SessionID, p subjects.PromptID, line string) {
	w.t.Helper()
	m := &nats.Msg{Subject: w.b.Fleet().Log(worker, s), Header: nats.Header{}, Data: []byte(line)}
	m.Header.Set(subjects.HeaderPrompt, string(p))
	if _, err := w.b.Publish(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) meta(m subjects.SessionMeta) {
	w.t.Helper()
	if _, err := w.b.SetJSON(w.t.Context(), w.b.Fleet().SessionsBucket(), subjects.MetaKey(m.Principal, m.Session), m, 0); err != nil {
		w.t.Fatal(err)
	}
}

// consumers is how many a stream has.
func (w *world) consumers(stream string) int {
	w.t.Helper()
	s, err := w.b.JetStream().Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().State.Consumers
}

func (w *world) lines(id string) []string {
	w.t.Helper()
	var out []string
	if err := w.f.Logs(w.t.Context(), id, false, func(l LogLine) error { out = append(out, string(l.Worker)+" "+l.Line); return nil }); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func TestLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, other := subjects.NewSession(), subjects.NewSession()
	first, second := subjects.NewPrompt(), subjects.NewPrompt()
	w.meta(subjects.SessionMeta{Session: s, Principal: "ada", Lane: subjects.SessionLane(s)})
	w.record(first, subjects.RunRecord{State: subjects.RunFailed, Session: s})
	w.log("w1-a", s, first, "one")
	w.log("w1-a", other, "px", "not this")
	w.log("w2-b", s, first, "two")
	w.log("w1-a", s, second, "three")
	for id, want := range map[string]string{
		string(s): "w1-a one,w2-b two,w1-a three", string(first): "w1-a one,w2-b two",
		// Without a record: found by what it wrote.
		string(second): "w1-a three", string(other): "w1-a not this", "px": "w1-a not this",
	} {
		if got := strings.Join(w.lines(id), ","); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
	if err := w.f.Logs(t.Context(), "nobody", false, nil); !errors.Is(err, ErrNoLogs) {
		t.Errorf("unknown: %v", err)
	}
	stop := errors.New("stop")
	if err := w.f.Logs(t.Context(), string(s), false, func(LogLine) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a writer that fails: %v", err)
	}
}

// Long logs come whole and in order, and leave no consumer behind.
func TestLongLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := subjects.NewSession()
	const n = 1300
	for i := range n {
		if err := w.b.Conn().Publish(w.b.Fleet().Log(subjects.Instance(fmt.Sprintf("w%d", i%3)), s), fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	w.log("w1", s, "p", "last") // acknowledged: all before it is stored
	w.meta(subjects.SessionMeta{Session: s, Principal: subjects.LocalPrincipal})
	lines := w.lines(string(s))
	if len(lines) != n+1 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines[:n] {
		if line != fmt.Sprintf("w%d %d", i%3, i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	if left := w.consumers(w.b.Fleet().LogsStream()); left != 0 {
		t.Errorf("%d consumers are left", left)
	}
}

// -f ends when the run has, with all its lines.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := subjects.NewSession()
	p := w.accept("1bjorn", s)
	lane, err := subjects.SlotLane("1bjorn")
	if err != nil {
		t.Fatal(err)
	}
	w.meta(subjects.SessionMeta{Session: s, Principal: subjects.LocalPrincipal, Raider: "bjorn", Slot: "1bjorn", Lane: lane})
	for _, id := range []string{string(p), string(s)} {
		var mu sync.Mutex
		var got []string
		seen := make(chan struct{}, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- w.f.Logs(t.Context(), id, true, func(l LogLine) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, l.Line)
				seen <- struct{}{}
				return nil
			})
		}()
		w.record(p, subjects.RunRecord{State: subjects.RunRunning, Session: s})
		w.log("w1-a", s, p, "begin "+id)
		<-seen
		w.log("w1-a", s, p, "last "+id)
		w.record(p, subjects.RunRecord{State: subjects.RunCompleted, Session: s})
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if text := strings.Join(got, ","); !strings.HasSuffix(text, "begin "+id+",last "+id) {
			t.Errorf("%s: %s", id, text)
		}
		mu.Unlock()
	}
}

// -f goes on when NATS was away, and ends when its reader has gone.
func TestLogsFollowOverARestart(t *testing.T) {
	t.Parallel()
	node := natstest.Single(t)
	layout := natstest.Layout(1)
	layout.Memory = false
	b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{node.URL()}, Name: t.Name(), Layout: layout, AckWait: natstest.AckWait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, b: b, f: New(b)}
	s := subjects.NewSession()
	p := w.accept("1bjorn", s)
	lane, err := subjects.SlotLane("1bjorn")
	if err != nil {
		t.Fatal(err)
	}
	w.meta(subjects.SessionMeta{Session: s, Principal: subjects.LocalPrincipal, Raider: "bjorn", Slot: "1bjorn", Lane: lane})
	w.record(p, subjects.RunRecord{State: subjects.RunRunning, Session: s})
	lines := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- w.f.Logs(t.Context(), string(p), true, func(l LogLine) error { lines <- l.Line; return nil })
	}()
	w.log("w1-a", s, p, "before")
	<-lines
	node.Stop()
	natstest.Eventually(t, 10*time.Second, "the link is lost", func() (bool, any) { return b.Link().Err() != nil, "up" })
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	<-b.Up()
	w.log("w1-a", s, p, "after")
	select {
	case line := <-lines:
		if line != "after" {
			t.Errorf("got %q", line)
		}
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	}
	w.record(p, subjects.RunRecord{State: subjects.RunCompleted, Session: s})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the reader has gone")
	if err := w.f.Logs(t.Context(), string(p), true, func(LogLine) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("without a reader: %v", err)
	}
}
