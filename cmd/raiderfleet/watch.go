package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/rpc"
)

// quietFor is how long a prompt may show nothing before a person is told why: the first
// start of an agent takes its time.
const quietFor = 2 * time.Second

// watch tells a person what a prompt is about while it shows nothing, and what becomes of
// it when its connection is lost.
type watch struct {
	printer *acpclient.Printer
	raider  string // may be empty: it is not known

	mu      sync.Mutex // guards the rest
	session string     // once the prompt is on its way
	quiet   *time.Timer
}

// sent notes that the prompt is on its way.
func (w *watch) sent(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = session
	w.quiet = time.AfterFunc(quietFor, func() {
		w.printer.Quiet(fmt.Sprintf("starting %s…", cmp.Or(w.raider, "the raider")))
	})
}

// cancelling says so when ctx ends before stop is called.
func (w *watch) cancelling(ctx context.Context) (stop func()) {
	told := context.AfterFunc(ctx, func() { w.printer.Note("cancelling… (Ctrl-C again does not wait)") })
	return func() {
		told()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.quiet != nil {
			w.quiet.Stop()
		}
	}
}

// lost adds to the error of a lost connection what has become of the prompt.
func (w *watch) lost(err error) error {
	w.mu.Lock()
	session := w.session
	w.mu.Unlock()
	if session == "" || !errors.Is(err, rpc.ErrClosed) {
		return err
	}
	name := "the prompt of session " + session
	id := cmp.Or(w.printer.Prompt(), session)
	if id != session {
		name = fmt.Sprintf("prompt %s of session %s", id, session)
	}
	return fmt.Errorf("%w\n%s goes on, if it was accepted. Look at it with: raiderfleet queue; end it with: raiderfleet cancel %s", err, name, id)
}
