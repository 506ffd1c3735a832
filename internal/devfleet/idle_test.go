package devfleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// script is an idle fleet whose use is scripted.
type script struct {
	used   func() bool
	events []string
}

func (s *script) idle(after time.Duration) idle {
	note := func(what string) func() error {
		return func() error { s.events = append(s.events, what); return nil }
	}
	return idle{after: after, used: s.used, announce: note("announce"), withdraw: note("withdraw")}
}

func TestIdleLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &script{used: func() bool { return time.Since(begin) < 30*time.Second }}
		if err := s.idle(time.Minute).wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 89*time.Second || took > 92*time.Second {
			t.Errorf("it left after %v, want a minute after the last use", took)
		}
		if !slices.Equal(s.events, []string{"withdraw"}) {
			t.Errorf("events: %q", s.events)
		}
	})
}

// Somebody joins after the last look and before the ready file has gone.
func TestIdleStaysForWhoJoinsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		s := &script{}
		s.used = func() bool { return len(s.events) == 1 } // exactly when it has been withdrawn
		if err := s.idle(time.Minute).wait(ctx); err != nil {
			t.Fatal(err)
		}
		if ctx.Err() == nil || !slices.Equal(s.events, []string{"withdraw", "announce"}) {
			t.Errorf("it left, with the events %q", s.events)
		}
	})
}

func TestIdleNeverLeavesUnlessTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
		defer cancel()
		s := &script{used: func() bool { return false }}
		if err := s.idle(0).wait(ctx); err != nil || len(s.events) != 0 {
			t.Errorf("got %v and the events %q", err, s.events)
		}
	})
}

func TestIdleSaysWhenTheReadyFileCannotGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := (&script{used: func() bool { return false }}).idle(time.Second)
		broken := errors.New("read-only")
		i.withdraw = func() error { return broken }
		if err := i.wait(t.Context()); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}
