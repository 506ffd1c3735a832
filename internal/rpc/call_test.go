package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"raiderfleet/internal/rpc"
)

func echo(_ context.Context, _ *rpc.Conn, r *rpc.Request) { _ = r.Reply(r.Params) }

func TestCallPassesTextVerbatim(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, nil, handler{request: echo})
	for _, params := range []string{`{"n":1.50,"b":9007199254740993,"s":"\u00e9\/<>","z":1,"a":{}}`, `[1e400, -0]`} {
		got, err := a.Call(t.Context(), "echo", json.RawMessage(params))
		if err != nil || string(got) != params {
			t.Fatalf("got %s, %v; want %s", got, err, params)
		}
	}
	got, err := a.Call(t.Context(), "echo", json.RawMessage("{\n \"a\": \"x\\n\"\r\n}"))
	if err != nil || string(got) != `{"a":"x\n"}` {
		t.Fatalf("text with line breaks: %s, %v", got, err)
	}
	if got, err = a.Call(t.Context(), "echo", nil); err != nil || string(got) != `null` {
		t.Fatalf("no params: %s, %v", got, err)
	}
}

func TestErrorsPass(t *testing.T) {
	t.Parallel()
	want := rpc.Error{Code: -32002, Message: "gone <&>", Data: json.RawMessage(`{"n":1.0}`)}
	a, _ := pair(t, nil, handler{request: func(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
		_ = r.ReplyError(&want)
		if err := r.Reply(1); !errors.Is(err, rpc.ErrAnswered) {
			t.Errorf("second answer: %v", err)
		}
	}})
	_, err := a.Call(t.Context(), "m", nil)
	var got *rpc.Error
	if !errors.As(err, &got) || got.Code != want.Code || got.Message != want.Message || string(got.Data) != string(want.Data) {
		t.Fatalf("got %#v", err)
	}
}

func TestNilHandlerAnswersMethodNotFound(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, nil, nil)
	_, err := a.Call(t.Context(), "m", nil)
	var got *rpc.Error
	if !errors.As(err, &got) || got.Code != rpc.CodeMethodNotFound {
		t.Fatalf("got %v", err)
	}
}

// Both ends answer on their reading goroutines over a pipe that holds nothing:
// that must not lock up.
func TestConcurrentCallsBothWays(t *testing.T) {
	t.Parallel()
	a, b := pair(t, handler{request: echo}, handler{request: echo})
	var all sync.WaitGroup
	for _, c := range []*rpc.Conn{a, b} {
		for g := range 8 {
			all.Go(func() {
				for i := range 100 {
					want := fmt.Sprintf(`[%d,%d]`, g, i)
					got, err := c.Call(t.Context(), "echo", json.RawMessage(want))
					if err != nil || string(got) != want {
						t.Errorf("got %s, %v; want %s", got, err, want)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

func TestCancelReachesTheRequest(t *testing.T) {
	t.Parallel()
	opened, cause := make(chan struct{}), make(chan error, 1)
	a, _ := pair(t, nil, handler{
		request: func(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
			if r.Method == "echo" {
				_ = r.Reply(r.Params)
				return
			}
			go func() {
				<-r.Context().Done()
				cause <- context.Cause(r.Context())
				_ = r.Reply("late") // to be ignored
			}()
			close(opened)
		},
		notify: func(_ context.Context, _ *rpc.Conn, method string, _ json.RawMessage) {
			t.Errorf("%s reached the handler", method)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := a.Call(ctx, "hang", nil)
		failed <- err
	}()
	wait(t, opened)
	cancel()
	if err := wait(t, failed); !errors.Is(err, context.Canceled) {
		t.Fatalf("Call: %v", err)
	}
	if err := wait(t, cause); !errors.Is(err, rpc.ErrPeerCancelled) {
		t.Fatalf("cause: %v", err)
	}
	if got, err := a.Call(t.Context(), "echo", json.RawMessage(`[1]`)); err != nil || string(got) != `[1]` {
		t.Fatalf("after a late response: %s, %v", got, err)
	}
}

func TestCallGivesUpWhileThePeerReadsNothing(t *testing.T) {
	t.Parallel()
	x, y := net.Pipe()
	defer func() { _ = y.Close() }()
	c := serve(t, x, nil, rpc.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, "m", nil)
		failed <- err
	}()
	cancel()
	if err := wait(t, failed); !errors.Is(err, context.Canceled) {
		t.Fatalf("Call: %v", err)
	}
}

func TestOpenCallsFailWhenThePeerGoes(t *testing.T) {
	t.Parallel()
	opened := make(chan struct{}, 8)
	a, b := pair(t, nil, handler{request: func(context.Context, *rpc.Conn, *rpc.Request) { opened <- struct{}{} }})
	failed := make(chan error, 8)
	for range 8 {
		go func() {
			_, err := a.Call(t.Context(), "hang", nil)
			failed <- err
		}()
	}
	for range 8 {
		wait(t, opened)
	}
	_ = b.Close()
	for range 8 {
		if err := wait(t, failed); !errors.Is(err, rpc.ErrClosed) {
			t.Fatalf("Call: %v", err)
		}
	}
	wait(t, a.Done())
	if _, err := a.Call(t.Context(), "m", nil); !errors.Is(err, rpc.ErrClosed) {
		t.Fatalf("Call afterwards: %v", err)
	}
}

// Many notifications are sent with few writes, each whole and in order.
func TestNotifyAll(t *testing.T) {
	t.Parallel()
	const n = 3000
	got := make(chan string, n+2)
	a, _ := pair(t, nil, handler{notify: func(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
		got <- method + string(params)
	}})
	params := make([]json.RawMessage, n)
	for i := range params {
		params[i] = json.RawMessage(fmt.Sprintf(`{"i":%d,"x":1.0,"text":%q}`, i, "…ü\n"))
	}
	for _, list := range [][]json.RawMessage{nil, params[:1], params} {
		if err := a.NotifyAll("m", list); err != nil {
			t.Fatal(err)
		}
		for _, want := range list {
			if text := wait(t, got); text != "m"+string(want) {
				t.Fatalf("got %s, want %s", text, want)
			}
		}
	}
}
