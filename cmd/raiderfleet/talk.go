package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"raiderfleet/internal/acpclient"
	"raiderfleet/internal/rpc"
)

// typedAhead is how many prompts wait for the running one. A line beyond them is not read
// yet, nor is the answer to a question after it.
const typedAhead = 1000

// maxTyped bounds a line of stdin, in bytes: a prompt may be pasted.
const maxTyped = 1 << 20

// talk is a conversation on the terminal. A line of stdin answers the question that is
// open, else it is a prompt; prompts run one after the other.
type talk struct {
	app     *app
	f       attachFlags
	session string
	printer *acpclient.Printer

	mu      sync.Mutex // guards the rest
	asked   int        // open questions
	answer  *io.PipeWriter
	running bool
}

// answers asks a person on stderr and takes the answer from the lines of stdin.
func (t *talk) answers() func(context.Context, acpclient.PermissionRequest) string {
	in, out := io.Pipe()
	t.answer = out
	terminal := acpclient.NewTerminal(in, t.app.stderr)
	return func(ctx context.Context, r acpclient.PermissionRequest) string {
		t.mu.Lock()
		t.asked++
		t.mu.Unlock()
		defer func() {
			t.mu.Lock()
			t.asked--
			t.mu.Unlock()
		}()
		choice := terminal.Permission(ctx, r)
		if choice == "" && ctx.Err() == nil && !t.busy() {
			// Stdin has ended, and the question is of a turn that others have started: it is
			// theirs to answer.
			return leaveOpen(ctx, r)
		}
		return choice
	}
}

// converse sends the lines of stdin until its end, or until ctx ends or a Ctrl-C comes
// while nothing runs.
func (t *talk) converse(ctx context.Context, c *client) error {
	// From here on a Ctrl-C cancels a turn, and not the command.
	interrupts, give := takeInterrupts(ctx)
	defer give()

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	prompts := make(chan string, typedAhead)
	go t.read(ctx, prompts, stop)

	over := make(chan error, 1)
	go func() { over <- t.run(ctx, c, prompts) }()
	for {
		select {
		case err := <-over:
			return err
		case <-interrupts:
			if !t.busy() {
				stop(&exitError{code: exitCancel})
				break
			}
			if err := c.Cancel(t.session); err != nil {
				stop(err)
			}
		case <-c.ended:
			stop(errors.New("the front door closed the connection"))
		case <-ctx.Done():
			err := context.Cause(ctx)
			c.end() // ends a turn's waiting
			if runErr := <-over; runErr != nil && err == nil {
				err = runErr
			}
			switch {
			case errors.Is(err, errLeft):
				return nil
			case errors.Is(err, context.Canceled): // a signal that came before ours were taken
				return &exitError{code: exitCancel}
			}
			return err
		}
	}
}

// errLeft is why a conversation ends whose person has left.
var errLeft = errors.New("left")

func (t *talk) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// read takes the lines of stdin. It ends with stdin, not with ctx: a read can't be ended.
// At the end of a terminal's the person has left; what was piped in is run to its end.
func (t *talk) read(ctx context.Context, prompts chan<- string, stop context.CancelCauseFunc) {
	defer func() {
		if t.answer != nil {
			_ = t.answer.Close() // nobody answers any more
		}
		if isTerminal(t.app.stdin) {
			stop(errLeft)
		}
		close(prompts)
	}()
	s := bufio.NewScanner(t.app.stdin)
	s.Buffer(nil, maxTyped)
	for s.Scan() {
		line := s.Text()
		t.mu.Lock()
		open := t.asked > 0 && t.answer != nil
		t.mu.Unlock()
		if open {
			_, _ = io.WriteString(t.answer, line+"\n") // fails when nobody reads any more
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		select {
		case prompts <- line:
		case <-ctx.Done():
			return
		}
	}
	if err := s.Err(); err != nil {
		stop(fmt.Errorf("read stdin: %w", err))
	}
}

// run sends the prompts one after the other.
func (t *talk) run(ctx context.Context, c *client, prompts <-chan string) error {
	for {
		select {
		case text, ok := <-prompts:
			if !ok {
				return nil
			}
			if err := t.turn(ctx, c, text); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// turn runs a prompt and says when it did not end as it should. Its error ends the
// conversation.
func (t *talk) turn(ctx context.Context, c *client, text string) error {
	t.mu.Lock()
	t.running = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.running = false
		t.mu.Unlock()
	}()
	// Ended by the end of the connection: that of ctx would cancel what is to go on.
	r, err := c.Prompt(context.WithoutCancel(ctx), t.session, text)
	if ctx.Err() != nil {
		return nil // who ended it knows why
	}
	if err := t.printer.End(r.Raw); err != nil {
		return fmt.Errorf("show the answer: %w", err)
	}
	fault, failed := errors.AsType[*rpc.Error](err)
	switch {
	case failed:
		_, _ = fmt.Fprintf(t.app.stderr, "raiderfleet: %s\n", fault.Message)
	case err != nil:
		return err
	case r.StopReason != acpclient.StopEndTurn:
		_, _ = fmt.Fprintf(t.app.stderr, "raiderfleet: the agent stopped: %s\n", r.StopReason)
	}
	return nil
}
