package rpc_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"raiderfleet/internal/rpc"
)

// The limits as the package's docs give them.
const (
	openRequests  = 16384
	queuedAnswers = 1024
)

// A peer that leaves too many requests open is answered at once; the others stay open, and
// one that is answered makes room.
func TestTooManyOpenRequests(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	held := make(chan *rpc.Request, openRequests+1)
	serve(t, near, handler{request: func(_ context.Context, _ *rpc.Conn, r *rpc.Request) { held <- r }}, rpc.Options{})
	answers := bufio.NewReader(far)
	ask := func(id int) {
		t.Helper()
		if _, err := fmt.Fprintf(far, `{"jsonrpc":"2.0","id":%d,"method":"m"}`+"\n", id); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(want string) {
		t.Helper()
		if got, err := answers.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
	}
	for i := range openRequests {
		ask(i)
	}
	ask(openRequests)
	answered(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":%d,"message":"too many requests are open"}}`, openRequests, rpc.CodeInternal))
	first := wait(t, held)
	if err := first.Reply(1); err != nil {
		t.Fatal(err)
	}
	answered(`{"jsonrpc":"2.0","id":0,"result":1}`)
	ask(openRequests + 1)
	for range openRequests - 1 {
		wait(t, held)
	}
	last := wait(t, held)
	if string(last.ID()) != fmt.Sprint(openRequests+1) {
		t.Fatalf("the last request that was taken is %s", last.ID())
	}
	if err := last.Reply(2); err != nil {
		t.Fatal(err)
	}
	answered(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":2}`, openRequests+1))
}

// A peer that sends bad lines and reads no answers: a bounded number of answers is kept,
// then no more lines are read. When it reads, none is missing.
func TestAnswersNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lines = 4 * queuedAnswers
		near, far := net.Pipe()
		c := rpc.NewConn(near, near, nil, rpc.Options{})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		// So long that a buffer holds but a few.
		line := []byte(`{"jsonrpc":"1.0","id":"x","pad":"` + strings.Repeat("x", 16<<10) + "\"}\n")
		var taken atomic.Int64
		written := make(chan error, 1)
		go func() {
			for range lines {
				if _, err := far.Write(line); err != nil {
					written <- err
					return
				}
				taken.Add(1)
			}
			written <- nil
		}()
		synctest.Wait() // all that can go on without a reader has
		// Those that are being written, and as many that wait.
		if n := taken.Load(); n < queuedAnswers || n > 2*queuedAnswers+64 {
			t.Errorf("%d lines were taken with nobody reading, want %d to %d", n, queuedAnswers, 2*queuedAnswers)
		}
		answers := bufio.NewReader(far)
		for i := range lines {
			got, err := answers.ReadString('\n')
			if err != nil || !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"x","error":{"code":-32600,`) {
				t.Fatalf("answer %d: %s, %v", i, got, err)
			}
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		_ = far.Close()
		_ = c.Close() // the pipe is closed
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
