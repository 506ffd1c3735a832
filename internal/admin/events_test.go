package admin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	news := make(chan News, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, o := range []EventOptions{{Prefix: "raider."}, {Prefix: "live.", Live: true}} {
		go func() {
			ended <- w.f.Events(ctx, o, func(n News) error { news <- n; return nil }, func(n int) { t.Errorf("%d were lost", n) })
		}()
	}
	// Told again until both listen.
	found := map[string]News{}
	for len(found) < 2 {
		w.f.tell(subjects.FleetEvent{Kind: subjects.RaiderDone, Lane: "slot-1bjorn", Session: "s1", Outcome: subjects.RunFailed, Error: "exit code 3"})
		w.f.tell(subjects.FleetEvent{Kind: subjects.WorkerLeft})
		event := &nats.Msg{
			Subject: w.b.Fleet().Event("s1"), Data: []byte("{\"a\":1}\n{\"a\":2}"),
			Header: subjects.EventHeader{Kind: subjects.EventUpdate, Prompt: "p1", Epoch: 1, N: 1}.Header(),
		}
		if _, err := w.b.Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			select {
			case n := <-news:
				found[n.Type] = n
			default:
				more = false
			}
		}
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	done, live := found["raider.done"], found["live.update"]
	if done.Fleet == nil || done.Fleet.Session != "s1" || live.Live == nil || live.Live.Prompt != "p1" || len(live.Live.Body) != 2 || live.Live.Seq == 0 || live.Live.Time.IsZero() {
		t.Fatalf("got %+v and %+v", done, live)
	}
	var again LiveEvent
	if err := json.Unmarshal(live.Raw, &again); err != nil || again.Type != "live.update" || again.Session != "s1" {
		t.Errorf("%s, %v", live.Raw, err)
	}
	var b strings.Builder
	if err := errors.Join(WriteNews(&b, done), WriteNews(&b, live)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" raider.done slot=1bjorn session=s1 outcome=failed error=\"exit code 3\"\n", ` body="{\"a\":1}"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	stopped := errors.New("stop")
	go func() {
		ended <- w.f.Events(t.Context(), EventOptions{}, func(News) error { return stopped }, func(int) {})
	}()
	for over := false; !over; {
		w.f.tell(subjects.FleetEvent{Kind: subjects.WorkerLeft})
		if err := w.b.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			over = true
			if !errors.Is(err, stopped) {
				t.Error(err)
			}
		default:
		}
	}
}
