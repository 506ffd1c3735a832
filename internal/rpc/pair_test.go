package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"
	"time"

	"raiderfleet/internal/rpc"
)

const patience = 20 * time.Second

// handler is a Handler made of functions; nil ones answer method-not-found and
// ignore.
type handler struct {
	request func(ctx context.Context, c *rpc.Conn, r *rpc.Request)
	notify  func(ctx context.Context, c *rpc.Conn, method string, params json.RawMessage)
}

func (h handler) HandleRequest(ctx context.Context, c *rpc.Conn, r *rpc.Request) {
	if h.request == nil {
		_ = r.ReplyError(&rpc.Error{Code: rpc.CodeMethodNotFound, Message: "not found"})
		return
	}
	h.request(ctx, c, r)
}

func (h handler) HandleNotification(ctx context.Context, c *rpc.Conn, method string, params json.RawMessage) {
	if h.notify != nil {
		h.notify(ctx, c, method, params)
	}
}

// serve runs a Conn over one end of a pipe for the length of the test.
func serve(t *testing.T, end net.Conn, h rpc.Handler, o rpc.Options) *rpc.Conn {
	t.Helper()
	c := rpc.NewConn(end, end, h, o)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	t.Cleanup(func() {
		_ = c.Close()
		if err := wait(t, ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("Run: %v", err)
		}
	})
	return c
}

// pair connects two Conns over a pipe without a buffer.
func pair(t *testing.T, a, b rpc.Handler) (*rpc.Conn, *rpc.Conn) {
	t.Helper()
	x, y := net.Pipe()
	return serve(t, x, a, rpc.Options{}), serve(t, y, b, rpc.Options{})
}

func wait[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
