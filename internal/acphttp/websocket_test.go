package acphttp

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"raiderfleet/internal/natstest"
)

// dial opens a WebSocket.
func (s *server) dial(o *websocket.DialOptions) (*websocket.Conn, *http.Response, error) {
	s.t.Helper()
	c, resp, err := websocket.Dial(s.t.Context(), strings.Replace(s.url, "http", "ws", 1)+Endpoint, o)
	if c != nil {
		c.SetReadLimit(1 << 20)
		s.t.Cleanup(func() { _ = c.CloseNow() })
	}
	return c, resp, err
}

func (s *server) socket() *websocket.Conn {
	s.t.Helper()
	c, resp, err := s.dial(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != 101 || resp.Header.Get(headerConnection) == "" {
		s.t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	return c
}

func (s *server) say(c *websocket.Conn, message string) {
	s.t.Helper()
	if err := c.Write(s.t.Context(), websocket.MessageText, []byte(message)); err != nil {
		s.t.Fatal(err)
	}
}

// hear is the next message.
func (s *server) hear(c *websocket.Conn, parts ...string) {
	s.t.Helper()
	for _, p := range parts {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		kind, got, err := c.Read(ctx)
		cancel()
		if err != nil || kind != websocket.MessageText || !strings.Contains(string(got), p) {
			s.t.Fatalf("%v %s, %v; want %s", kind, got, err, p)
		}
	}
}

// closed is the code that the connection is closed with.
func (s *server) closed(c *websocket.Conn) websocket.StatusCode {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.socket()
	s.say(c, strings.ReplaceAll(hello, ",", ",\n")) // in several lines, as JSON may be
	s.hear(c, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}`)
	s.say(c, `{"jsonrpc":`)
	s.hear(c, `"id":null,"error":{"code":-32700`)
	s.say(c, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}")
	s.hear(c, `"id":null,"error":{"code":-32700`)
	if err := c.Write(t.Context(), websocket.MessageBinary, []byte("ignored")); err != nil {
		t.Fatal(err)
	}
	// In fragments.
	w, err := c.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.SplitAfter(fmt.Sprintf(prompt, 2, "ask"), ",") {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.hear(c, `"text":"ask"`, `"rf-1","method":"session/request_permission"`)
	s.say(c, `{"jsonrpc":"2.0","id":"rf-1","result":5}`)
	s.hear(c, `"text":"5"`, `"id":2,"result"`)
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil { // the handshake is completed
		t.Error(err)
	}
}

func TestWebSocketRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.MaxMessageBytes = 1000 })
	for _, first := range []string{`{"jsonrpc":"2.0","id":1,"method":"session/new"}`, `{`, `{"jsonrpc":"2.0","method":"initialize"}`} {
		c := s.socket()
		s.say(c, first)
		if code := s.closed(c); code != websocket.StatusProtocolError {
			t.Errorf("%s: closed with %d", first, code)
		}
	}
	c := s.socket()
	s.say(c, hello)
	s.hear(c, `"id":0`)
	s.say(c, `{"a":"`+strings.Repeat("x", 1000)+`"}`)
	if code := s.closed(c); code != websocket.StatusMessageTooBig {
		t.Errorf("too large: closed with %d", code)
	}
	for name, value := range map[string]string{"Origin": "http://127.0.0.1", "Host": "evil.example"} {
		o := &websocket.DialOptions{HTTPHeader: http.Header{name: {value}}}
		if name == "Host" {
			o = &websocket.DialOptions{Host: value}
		}
		if _, resp, err := s.dial(o); err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s: %v", name, value, err)
		}
	}
}

// A subprotocol that isn't ours is no error, ours is echoed.
func TestSubprotocols(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for offered, want := range map[string]string{"other": "", "acp.v1": "acp.v1"} {
		c, _, err := s.dial(&websocket.DialOptions{Subprotocols: []string{offered}})
		if err != nil || c.Subprotocol() != want {
			t.Errorf("%s: %v", offered, err)
		}
	}
}

// A connection that answers no ping ends; one that does is left alone.
func TestPing(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.Beat = 30 * time.Millisecond })
	dead, alive := s.socket(), s.socket() // who doesn't read answers no ping
	s.say(dead, hello)
	s.say(alive, hello)
	s.hear(alive, `"id":0`)
	reading := alive.CloseRead(t.Context())
	natstest.Eventually(t, patience, "one is left", func() (bool, any) {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		return s.h.count == 1, s.h.count
	})
	if reading.Err() != nil {
		t.Error("the one that answers has ended")
	}
}

func TestWebSocketShutdown(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.socket()
	s.say(c, hello)
	s.hear(c, `"id":0`)
	ended := make(chan struct{})
	go func() { defer close(ended); s.h.Close() }()
	if code := s.closed(c); code != websocket.StatusGoingAway {
		t.Errorf("closed with %d", code)
	}
	<-ended
}
