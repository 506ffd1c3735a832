package acphttp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raiderfleet/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// agent answers as a front door would, of what the transports see.
type agent struct {
	work sync.WaitGroup
}

func serve(ctx context.Context, r io.Reader, w io.Writer) error {
	a := &agent{}
	c := rpc.NewConn(r, w, a, rpc.Options{MaxLineBytes: 1 << 20})
	err := c.Run(ctx)
	_ = c.Close()
	a.work.Wait()
	return err
}

func (a *agent) HandleRequest(_ context.Context, c *rpc.Conn, r *rpc.Request) {
	id := text(r.Params, "sessionId")
	update := func(text string) {
		_ = c.Notify("session/update", map[string]any{"sessionId": id, "update": map[string]any{"text": text}})
	}
	switch r.Method {
	case "initialize":
		if text(r.Params, "fail") != "" {
			_ = r.ReplyError(&rpc.Error{Code: -32602, Message: "no"})
			return
		}
		_ = r.Reply(map[string]int{"protocolVersion": 1})
	case "session/new":
		_ = r.Reply(map[string]string{"sessionId": "s1"})
	case "session/load":
		a.work.Go(func() {
			for i := range 20 {
				update(fmt.Sprint("old ", i))
			}
			_ = r.Reply(struct{}{})
		})
	case "session/prompt":
		a.work.Go(func() {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			what := text(r.Params, "prompt")
			update(what)
			switch {
			case strings.HasPrefix(what, "fill"): // more than a stream keeps
				for i := range 100 {
					update(fmt.Sprint(i, strings.Repeat("x", 1000)))
				}
			case what == "ask", what == "withdraw":
				if what == "withdraw" {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
				answer, err := c.Call(ctx, "session/request_permission", map[string]string{"sessionId": id})
				if err != nil {
					answer = json.RawMessage(`"withdrawn"`)
				}
				update(string(answer))
			}
			_ = r.Reply(map[string]string{"stopReason": "end_turn"})
		})
	case "session/list":
		_ = r.Reply(map[string]any{"sessions": []any{}})
	case "session/delete":
		_ = r.Reply(struct{}{})
	default:
		_ = r.ReplyError(&rpc.Error{Code: rpc.CodeMethodNotFound, Message: "method not found"})
	}
}

func (a *agent) HandleNotification(context.Context, *rpc.Conn, string, json.RawMessage) {}

// server is a handler that listens.
type server struct {
	t   *testing.T
	h   *Handler
	url string
}

func start(t *testing.T, change func(*Options)) *server {
	t.Helper()
	o := Options{Serve: serve, Affinity: "fd-1", Loopback: true}
	if change != nil {
		change(&o)
	}
	h := New(o)
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() { h.Close(); s.Close() })
	return &server{t: t, h: h, url: s.URL}
}

// do sends a request; headers are pairs.
func (s *server) do(method, path, body string, headers ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func all(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const jsonType = "application/json"

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`

// initialize begins a connection and returns its id.
func (s *server) initialize() string {
	s.t.Helper()
	r := s.do("POST", Endpoint, hello, "Content-Type", jsonType)
	if got := all(s.t, r); r.StatusCode != 200 || got != `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}` {
		s.t.Fatalf("%s %s", r.Status, got)
	}
	id := r.Header.Get(headerConnection)
	if id == "" {
		s.t.Fatal("no connection id")
	}
	return id
}

// post sends a message on a connection.
func (s *server) post(conn, body string, headers ...string) {
	s.t.Helper()
	r := s.do("POST", Endpoint, body, append([]string{"Content-Type", jsonType, headerConnection, conn}, headers...)...)
	if got := all(s.t, r); r.StatusCode != 202 || got != "" {
		s.t.Fatalf("%s: %s %q", body, r.Status, got)
	}
}

// events is an open stream.
type events struct {
	t    *testing.T
	resp *http.Response
	come chan string
	stop context.CancelFunc
}

// open opens a stream; an empty session is the connection's.
func (s *server) open(conn, session string) *events {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+Endpoint, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set(headerConnection, conn)
	if session != "" {
		r.Header.Set(headerSession, session)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("stream: %s %v", resp.Status, resp.Header)
	}
	e := &events{t: s.t, resp: resp, come: make(chan string, 10000), stop: cancel}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(e.come)
		l := &lines{f: func(line []byte) error { e.come <- string(line); return nil }}
		_, _ = io.Copy(l, resp.Body) // until it ends
	})
	s.t.Cleanup(func() { cancel(); _ = resp.Body.Close(); reading.Wait() })
	return e
}

// next is the next event's data.
func (e *events) next() string {
	e.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-e.come:
			if !ok {
				e.t.Fatal("the stream has ended")
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if blank := <-e.come; blank != "" {
					e.t.Fatalf("an event is followed by %q", blank)
				}
				return data
			}
		case <-timer.C:
			e.t.Fatal("no event")
		}
	}
}

func (e *events) want(parts ...string) {
	e.t.Helper()
	for _, p := range parts {
		if got := e.next(); !strings.Contains(got, p) {
			e.t.Fatalf("event %s, want %s", got, p)
		}
	}
}
