package worker

import (
	"testing"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func TestLogBook(t *testing.T) {
	t.Parallel()
	b := logBook{max: 100}
	for i := range 12 {
		if keep := b.add(10); keep != 0 {
			t.Errorf("line %d: %d are kept, nothing has to go yet", i, keep)
		}
	}
	if keep := b.add(10); keep != 10 {
		t.Errorf("%d lines are kept, want 10 of 10 bytes", keep)
	}
	if keep := b.add(500); keep != 1 {
		t.Errorf("%d lines are kept beside a large one", keep)
	}
	if none := (&logBook{}); none.add(1<<30) != 0 {
		t.Error("cut without a bound")
	}
}

// The events of old runs go, and the older part of a log; the transcript keeps all.
func TestOldEventsAndLogsGo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.idleWorker(func(c *Config) { c.KeepEvents, c.MaxLogSize = 2, 100 })
	w.keepFor = 0
	f.start(w)
	s := f.session(nil)
	const runs = 6
	for range runs {
		f.want(s.prompt("stderr %s; say x", "0123456789012345678901234567890123456789"), subjects.RunCompleted, "", 10*time.Second)
	}
	natstest.Eventually(t, 10*time.Second, "the transcript is whole", func() (bool, any) { n := len(s.transcript()); return n == runs, n })
	users := 0
	natstest.Eventually(t, 10*time.Second, "old events have gone", func() (bool, any) {
		users = s.kinds()[subjects.EventUser]
		return users < runs, users
	})
	// Between two and four runs are there, and the first of them whole.
	if first := s.events()[0]; users < 2 || users > 4 || first.Kind != subjects.EventUser {
		t.Errorf("events of %d runs are left, the first is %+v", users, first.EventHeader)
	}
	natstest.Eventually(t, 10*time.Second, "the log's older part has gone", func() (bool, any) {
		lines := 0
		for from := uint64(1); ; lines++ {
			m, err := f.b.Next(t.Context(), f.f.LogsStream(), f.f.Log(w.Instance(), s.meta.Session), from)
			if err != nil {
				return lines > 0 && lines <= 3, lines
			}
			from = m.Seq + 1
		}
	})
}

func TestCutOfNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	if err := f.b.Cut(t.Context(), f.f.EventsStream(), bus.Cut{Subject: f.f.Event("nobody"), Before: 7}); err != nil {
		t.Error(err)
	}
}

// A client may be far behind: what has just run is not cut, however many runs there were.
func TestYoungEventsStay(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	f.run(func(c *Config) { c.KeepEvents = 1 })
	s := f.session(nil)
	const runs = 8
	for range runs {
		f.want(s.prompt("say x"), subjects.RunCompleted, "", 10*time.Second)
	}
	natstest.Eventually(t, 10*time.Second, "the transcript is whole", func() (bool, any) { n := len(s.transcript()); return n == runs, n })
	if users := s.kinds()[subjects.EventUser]; users != runs {
		t.Errorf("the events of %d runs are left", users)
	}
}
