package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raiderfleet/internal/demo"
	"raiderfleet/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the ACP client of one demo raider.
type client struct {
	conn    *rpc.Conn
	updates chan string // "kind text"
	noise   chan string
	option  string // answer to asks
	exit    chan int
}

func (c *client) HandleRequest(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
	if c.option == "" {
		return
	}
	_ = r.Reply(map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": c.option}})
}

func (c *client) HandleNotification(_ context.Context, _ *rpc.Conn, _ string, params json.RawMessage) {
	var p struct {
		Update struct {
			SessionUpdate string          `json:"sessionUpdate"`
			Content       json.RawMessage `json:"content"`
		} `json:"update"`
	}
	_ = json.Unmarshal(params, &p)
	var block struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(p.Update.Content, &block)
	c.updates <- p.Update.SessionUpdate + " " + block.Text
}

func start(t *testing.T, state, option string) *client {
	t.Helper()
	near, far := net.Pipe()
	c := &client{updates: make(chan string, 20000), noise: make(chan string, 100), option: option, exit: make(chan int, 1)}
	go func() {
		c.exit <- demo.Main(t.Context(), []string{"--state", state}, far, struct{ io.Writer }{far}, io.Discard)
		_ = far.Close()
	}()
	c.conn = rpc.NewConn(near, near, c, rpc.Options{SkipNoise: func(l []byte) { c.noise <- string(l) }})
	ended := make(chan error, 1)
	go func() { ended <- c.conn.Run(t.Context()) }()
	t.Cleanup(func() {
		_ = c.conn.Close()
		<-ended //nolint:errcheck // only that it has ended
		select {
		case <-c.exit:
		case <-time.After(20 * time.Second):
			t.Error("the raider did not end")
		}
	})
	c.call(t, "initialize", `{"protocolVersion":1}`)
	return c
}

func (c *client) call(t *testing.T, method, params string) string {
	t.Helper()
	got, err := c.conn.Call(t.Context(), method, json.RawMessage(params))
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return string(got)
}

func (c *client) open(t *testing.T) string {
	t.Helper()
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal([]byte(c.call(t, "session/new", `{"cwd":"/","mcpServers":[]}`)), &r); err != nil {
		t.Fatal(err)
	}
	return r.SessionID
}

func promptParams(session, text string) json.RawMessage {
	quoted, _ := json.Marshal(text)
	return json.RawMessage(fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}`, session, quoted))
}

// prompt runs a turn and gives its result and the updates that came before it.
func (c *client) prompt(t *testing.T, session, text string) (string, []string) {
	t.Helper()
	result := c.call(t, "session/prompt", string(promptParams(session, text)))
	return result, c.seen()
}

func (c *client) seen() []string {
	var all []string
	for len(c.updates) > 0 {
		all = append(all, <-c.updates)
	}
	return all
}

const ended = `{"stopReason":"end_turn"}`

func TestWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ prompt, option, want string }{
		{"echo hello  fleet", "", "agent_message_chunk hello  fleet"},
		{"ask", "allow_once", "agent_message_chunk allowed once"},
		{"ask Delete it", "allow_always", "agent_message_chunk allowed always"},
		{"ask", "reject_once", "agent_message_chunk rejected"},
		{"ask", "never_offered", "agent_message_chunk rejected"},
		{"cwd", "", "agent_message_chunk /"},
		{"pid", "", fmt.Sprintf("agent_message_chunk %d", os.Getpid())},
		{"think", "", "agent_thought_chunk The demo thinks.|agent_message_chunk thought about it"},
		{"tool", "", "tool_call |tool_call_update |tool_call_update |agent_message_chunk counted to three"},
		{"plan", "", "plan |plan |plan |plan |agent_message_chunk planned"},
		{"sleep 0", "", "agent_message_chunk slept 0s"},
		{"env PATH", "", "agent_message_chunk " + os.Getenv("PATH")},
		{"env RF_TEST_NOT_SET", "", "agent_message_chunk "},
		{"history", "", "agent_message_chunk "},
		{`update {"sessionUpdate":"made_up","content":{"text":"raw"}}`, "", "made_up raw"},
	} {
		t.Run(tc.prompt+tc.option, func(t *testing.T) {
			t.Parallel()
			c := start(t, t.TempDir(), tc.option)
			result, updates := c.prompt(t, c.open(t), tc.prompt)
			if got := strings.Join(updates, "|"); result != ended || got != tc.want {
				t.Fatalf("got %s %s; want %s", result, got, tc.want)
			}
		})
	}
}

// Any other word is answered with the words there are.
func TestHelp(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir(), "")
	session := c.open(t)
	for _, text := range []string{"help", "what can you do?", "Echo x"} {
		result, updates := c.prompt(t, session, text)
		if result != ended || len(updates) != 1 {
			t.Fatalf("%s: %s %q", text, result, updates)
		}
		for _, word := range []string{
			"echo", "sleep", "ask", "fail", "tool", "think", "plan", "stream", "history",
			"cwd", "env", "pid", "exit", "hang", "fork", "noise", "update", "call", "notify", "can", "settings",
		} {
			if !strings.Contains(updates[0], word) {
				t.Errorf("%s: nothing of %s in %s", text, word, updates[0])
			}
		}
	}
}

func TestStreamAndNoise(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir(), "")
	session := c.open(t)
	if _, updates := c.prompt(t, session, "stream 500 100"); len(updates) != 500 || len(updates[7]) != len("agent_message_chunk ")+100 {
		t.Fatalf("%d updates", len(updates))
	}
	if _, updates := c.prompt(t, session, "noise"); len(updates) != 6 || len(c.noise) != 6 {
		t.Fatalf("%d updates, %d lines of noise", len(updates), len(c.noise))
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir(), "")
	_, err := c.conn.Call(t.Context(), "session/prompt", promptParams(c.open(t), "fail out of luck"))
	var e *rpc.Error
	if !errors.As(err, &e) || e.Message != "out of luck" {
		t.Fatalf("got %v", err)
	}
	_, err = c.conn.Call(t.Context(), "session/prompt", promptParams("../nowhere", "echo x"))
	if !errors.As(err, &e) || e.Code != rpc.CodeNotFound || string(e.Data) != `{"sessionId":"../nowhere"}` {
		t.Fatalf("unknown session: %v", err)
	}
}

func TestHistoryAndLoadInAnotherProcess(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	first := start(t, state, "")
	session := first.open(t)
	first.prompt(t, session, "echo one")
	first.prompt(t, session, "pid")

	second := start(t, state, "")
	if got := second.call(t, "session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/","mcpServers":[]}`, session)); strings.Contains(got, "sessionId") {
		t.Fatalf("load: %s", got)
	}
	replay := strings.Join(second.seen(), "|")
	want := fmt.Sprintf("user_message_chunk echo one|agent_message_chunk one|user_message_chunk pid|agent_message_chunk %d", os.Getpid())
	if replay != want {
		t.Fatalf("replay: %s", replay)
	}
	if _, updates := second.prompt(t, session, "history"); strings.Join(updates, "|") != "agent_message_chunk echo one\npid" {
		t.Fatalf("history: %q", updates)
	}
	files, err := filepath.Glob(filepath.Join(state, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files: %v %v", files, err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, prompt := range []string{"sleep 1000", "ask", "stream 100000000 10"} {
		t.Run(prompt, func(t *testing.T) {
			t.Parallel()
			c := start(t, t.TempDir(), "")
			session := c.open(t)
			result := make(chan string, 1)
			sent := make(chan struct{})
			go func() {
				close(sent)
				got, err := c.conn.Call(t.Context(), "session/prompt", promptParams(session, prompt))
				result <- fmt.Sprint(string(got), err)
			}()
			<-sent
			deadline := time.After(20 * time.Second)
			for {
				// Cancel again and again: one before the prompt has arrived counts for nothing.
				if err := c.conn.Notify("session/cancel", json.RawMessage(fmt.Sprintf(`{"sessionId":%q}`, session))); err != nil {
					t.Fatal(err)
				}
				select {
				case got := <-result:
					if got != `{"stopReason":"cancelled"}<nil>` {
						t.Fatalf("got %s", got)
					}
					return
				case <-c.updates:
				case <-deadline:
					t.Fatal("not cancelled")
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
}
