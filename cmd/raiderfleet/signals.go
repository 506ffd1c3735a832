package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// sameSignal is the time in which a second signal is the first one once more: some
// programs signal their child and then its process group.
const sameSignal = 200 * time.Millisecond

// interrupts is who takes a Ctrl-C instead of the command's context. Handing it over leaves
// no moment in which a Ctrl-C would end the process as if nobody took it.
type interrupts struct {
	mu sync.Mutex // guards to
	to chan<- os.Signal
}

type interruptsKey struct{}

// takeInterrupts makes Ctrl-C no end of ctx any more, but come on the channel, until give is
// called.
func takeInterrupts(ctx context.Context) (taken <-chan os.Signal, give func()) {
	to := make(chan os.Signal, 1)
	i, ok := ctx.Value(interruptsKey{}).(*interrupts)
	if !ok {
		return to, func() {} // no signal ends ctx
	}
	i.set(to)
	return to, func() { i.set(nil) }
}

func (i *interrupts) set(to chan<- os.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.to = to
}

// take hands a signal over; false when nobody takes it.
func (i *interrupts) take(s os.Signal) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.to == nil || s != os.Interrupt {
		return false
	}
	select {
	case i.to <- s:
	default: // one is on its way
	}
	return true
}

// untilSignal returns a context that the first SIGINT or SIGTERM ends: what runs stops in
// order. The second one calls exit at once, with 130 or 143 as a shell would say it.
func untilSignal(parent context.Context, exit func(int)) (context.Context, context.CancelFunc) {
	handed := &interrupts{}
	ctx, cancel := context.WithCancel(context.WithValue(parent, interruptsKey{}, handed))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var first time.Time
		for {
			select {
			case s := <-signals:
				switch {
				case handed.take(s):
				case first.IsZero():
					first = time.Now()
					cancel()
				case time.Since(first) > sameSignal:
					exit(signalCode(s))
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cancel()
	}
}

func signalCode(s os.Signal) int {
	const fromSignal = 128
	if n, ok := s.(syscall.Signal); ok {
		return fromSignal + int(n)
	}
	return 1
}
