package acpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"raiderfleet/internal/rpc"
)

// The stop reasons of ACP that a caller tells apart.
const (
	StopEndTurn   = "end_turn"
	StopCancelled = "cancelled"
)

// closeTime bounds the wait for a session's close: its raider may take its time to end.
const closeTime = 5 * time.Second

// Turn is one prompt in a session of its own.
type Turn struct {
	// Cwd is the session's directory, an absolute path.
	Cwd string
	// Raider or slot; empty for the default.
	Raider string
	Text   string
	// Close: the session is closed when the turn has ended, within closeTime.
	Close bool
	// Sent is called with the session just before the prompt is sent. Default: nothing.
	Sent func(session string)
}

// Do opens conn's protocol, runs the turn and closes conn. The end of ctx cancels the
// turn, which is answered all the same: only an end of ctx before the prompt was sent is
// an error of its own.
func (t Turn) Do(ctx context.Context, conn io.ReadWriteCloser, o Options) (Result, error) {
	c := New(conn, conn, o)
	// The connection outlives ctx, so that the answer to a cancelled turn is read.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(life) }()
	r, err := t.do(ctx, life, c)
	closeErr := c.Close()
	end()
	runErr := <-ended
	if errors.Is(err, rpc.ErrClosed) {
		return Result{}, fmt.Errorf("the front door closed the connection: %w", errors.Join(runErr, closeErr, err))
	}
	return r, err // what closing says is of no use to who has an answer
}

func (t Turn) do(ctx, life context.Context, c *Client) (Result, error) {
	if err := c.Initialize(ctx); err != nil {
		return Result{}, err
	}
	session, err := c.NewSession(ctx, t.Cwd, t.Raider)
	if err != nil {
		return Result{}, err
	}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		if err := c.Cancel(session); err != nil {
			c.o.Logger.Debug("cancel not sent", "error", err)
		}
	})
	defer func() {
		if !stop() {
			<-cancelled
		}
	}()
	if t.Sent != nil {
		t.Sent(session)
	}
	result, err := c.Prompt(life, session, t.Text)
	if t.Close && !errors.Is(err, rpc.ErrClosed) {
		bound, done := context.WithTimeout(life, closeTime)
		defer done()
		if closeErr := c.CloseSession(bound, session); closeErr != nil {
			c.o.Logger.Debug("session not closed", "session", session, "error", closeErr)
		}
	}
	return result, err
}
