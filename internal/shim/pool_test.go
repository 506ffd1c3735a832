//go:build unix

package shim_test

import (
	"context"
	"testing"
	"time"

	"raiderfleet/internal/shim"
)

func TestPool(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	pool := shim.NewPool(self("shim"), nil, 2)
	ran := make(chan error, 1)
	go func() { ran <- pool.Run(ctx) }()
	for range 5 {
		until(t, func() string {
			if pool.Len() == 0 {
				return "the pool is empty"
			}
			return ""
		})
		s := spec("exit", "7")
		s.Pool = pool
		p := mustStart(t, s)
		within(t, p.Gone(), "gone")
		if got := p.Exit().Code; got != 7 {
			t.Error(got)
		}
	}
	if pool.Len() > 2 {
		t.Error(pool.Len())
	}
	cancel()
	select {
	case err := <-ran:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the pool did not end")
	}
	s := spec("exit", "7")
	s.Pool = pool // empty now
	within(t, mustStart(t, s).Gone(), "gone")
}

func TestPoolOfBadShims(t *testing.T) {
	t.Parallel()
	pool := shim.NewPool([]string{"true"}, nil, 1)
	if err := pool.Run(t.Context()); err == nil {
		t.Error("no error")
	}
	s := spec("exit", "0")
	s.Pool = pool
	within(t, mustStart(t, s).Gone(), "gone")
}
