package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"raiderfleet/internal/rpc"
)

// agent is an ACP agent to talk to: the fleet's front door, or a raider on a bare pipe.
// Both are spoken to by the same code, so that it weighs the same in both figures.
type agent struct {
	tb      testing.TB
	conn    *rpc.Conn
	running sync.WaitGroup
	end     func()

	updates atomic.Int64
}

// HandleRequest refuses: no benchmark asks for anything.
func (a *agent) HandleRequest(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
	_ = r.ReplyError(&rpc.Error{Code: rpc.CodeMethodNotFound, Message: "no"}) // the connection may have ended
}

// HandleNotification counts updates.
func (a *agent) HandleNotification(_ context.Context, _ *rpc.Conn, method string, _ json.RawMessage) {
	if method == "session/update" {
		a.updates.Add(1)
	}
}

// close ends the connection and, where there is one, the process.
func (a *agent) close() {
	_ = a.conn.Close() // the peer may have gone first
	a.end()
	a.running.Wait()
}

// bare starts the demo raider on a pipe. It is initialized.
func bare(tb testing.TB, state string) *agent {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe, "demo", "--state", state)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	a := &agent{tb: tb, end: func() { _ = cmd.Wait() }} // how it ended is nobody's business here
	a.conn = rpc.NewConn(stdout, stdin, a, rpc.Options{})
	a.running.Go(func() { _ = a.conn.Run(context.Background()) })
	a.call("initialize", `{"protocolVersion":1}`)
	return a
}

func (a *agent) call(method, params string) json.RawMessage {
	a.tb.Helper()
	result, err := a.conn.Call(context.Background(), method, json.RawMessage(params))
	if err != nil {
		a.tb.Fatalf("%s: %v", method, err)
	}
	return result
}

func (a *agent) session() string {
	a.tb.Helper()
	var r struct {
		ID string `json:"sessionId"`
	}
	if err := json.Unmarshal(a.call("session/new", `{"cwd":"/","mcpServers":[]}`), &r); err != nil {
		a.tb.Fatal(err)
	}
	return r.ID
}

// turn is one prompt and all its answers.
func (a *agent) turn(session, text string) {
	a.tb.Helper()
	if err := a.tryTurn(session, text); err != nil {
		a.tb.Fatal(err)
	}
}

// tryTurn is turn for goroutines that must not end the test.
func (a *agent) tryTurn(session, text string) error {
	r, err := a.conn.Call(context.Background(), "session/prompt",
		json.RawMessage(fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, session, text)))
	if err == nil && !strings.Contains(string(r), "end_turn") {
		err = fmt.Errorf("%s answered %s", text, r)
	}
	return err
}

// closeSession ends the session's raider, where the agent can.
func (a *agent) closeSession(session string) {
	a.tb.Helper()
	_, err := a.conn.Call(context.Background(), "session/close", json.RawMessage(fmt.Sprintf(`{"sessionId":%q}`, session)))
	var refused *rpc.Error
	if err != nil && (!errors.As(err, &refused) || refused.Code != rpc.CodeMethodNotFound) {
		a.tb.Fatalf("session/close: %v", err)
	}
}
