package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// overWebSocket is a connection whose lines are the messages of a WebSocket.
func overWebSocket(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	c, resp, err := websocket.Dial(tb.Context(), "ws://"+addr+"/acp", nil) //nolint:bodyclose // of a response that has none
	if err != nil {
		tb.Fatal(err)
	}
	if resp.Header.Get("Acp-Connection-Id") == "" {
		tb.Error("the upgrade has no connection id")
	}
	c.SetReadLimit(-1)
	near, far := net.Pipe()
	ctx, cancel := life(tb)
	var working sync.WaitGroup
	working.Go(func() {
		defer func() { _ = c.CloseNow() }()
		eachLine(far, func(line []byte) bool { return c.Write(ctx, websocket.MessageText, line) == nil })
	})
	working.Go(func() {
		defer func() { _ = far.Close() }()
		for {
			kind, message, err := c.Read(ctx)
			if err != nil {
				return
			}
			if kind != websocket.MessageText {
				tb.Error("a binary message")
			}
			if _, err := far.Write(append(message, '\n')); err != nil {
				return
			}
		}
	})
	tb.Cleanup(func() { _ = near.Close(); cancel(); working.Wait() })
	return near
}

func eachLine(r io.Reader, f func([]byte) bool) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil || !f(bytes.TrimRight(line, "\n")) {
			return
		}
	}
}

// webClient speaks Streamable HTTP as the protocol's TypeScript SDK does: one POST after the
// other, a stream for a session when its id is seen or is to be used.
type webClient struct {
	tb   testing.TB
	url  string
	ctx  context.Context //nolint:containedctx // the client's life
	http *http.Client
	far  net.Conn
	work sync.WaitGroup

	writing sync.Mutex // a line is written whole

	mu   sync.Mutex // guards the rest
	conn string
	open map[string]bool
}

// overHTTP is a connection whose lines go by HTTP.
func overHTTP(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	near, far := net.Pipe()
	ctx, cancel := life(tb)
	tr := &http.Transport{MaxConnsPerHost: 0}
	w := &webClient{tb: tb, url: "http://" + addr + "/acp", ctx: ctx, http: &http.Client{Transport: tr}, far: far, open: map[string]bool{}}
	w.work.Go(func() {
		eachLine(far, w.post)
		if w.conn != "" {
			_, _ = w.do(http.MethodDelete, nil, "") // the connection may have ended
		}
		_ = far.Close()
	})
	tb.Cleanup(func() { _ = near.Close(); cancel(); w.work.Wait(); tr.CloseIdleConnections() })
	return near
}

func (w *webClient) do(method string, body []byte, session string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(w.ctx, method, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodGet {
		r.Header.Set("Accept", "text/event-stream")
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	if conn != "" {
		r.Header.Set("Acp-Connection-Id", conn)
	}
	if session != "" {
		r.Header.Set("Acp-Session-Id", session)
	}
	return w.http.Do(r)
}

// post sends one message; false ends the client.
func (w *webClient) post(line []byte) bool {
	var m struct {
		Method string `json:"method"`
		Params struct {
			SessionID string `json:"sessionId"`
		} `json:"params"`
	}
	_ = json.Unmarshal(line, &m) // what has no params
	switch m.Method {
	case "session/load", "session/resume", "session/prompt":
		w.stream(m.Params.SessionID)
	}
	resp, err := w.do(http.MethodPost, line, m.Params.SessionID)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	switch {
	case err != nil:
		return false
	case resp.StatusCode == http.StatusOK && m.Method == "initialize":
		w.mu.Lock()
		w.conn = resp.Header.Get("Acp-Connection-Id")
		w.mu.Unlock()
		w.stream("")
		w.write(body)
	case resp.StatusCode != http.StatusAccepted || len(body) > 0:
		if w.ctx.Err() == nil {
			w.tb.Errorf("POST %s: %s %s", m.Method, resp.Status, body)
		}
		return false
	}
	return true
}

func (w *webClient) write(line []byte) {
	w.writing.Lock()
	defer w.writing.Unlock()
	_, _ = w.far.Write(append(line, '\n')) // the test may have closed it
}

// stream opens a stream unless it is open.
func (w *webClient) stream(session string) {
	w.mu.Lock()
	known := w.open[session]
	w.open[session] = true
	w.mu.Unlock()
	if known {
		return
	}
	resp, err := w.do(http.MethodGet, nil, session)
	if err != nil {
		return
	}
	if resp.StatusCode != http.StatusOK {
		w.tb.Errorf("stream of %q: %s", session, resp.Status)
	}
	w.work.Go(func() {
		defer func() { _ = resp.Body.Close() }()
		eachLine(resp.Body, func(line []byte) bool {
			data, ok := bytes.CutPrefix(line, []byte("data: "))
			if !ok {
				return true
			}
			var m struct {
				Result struct {
					SessionID string `json:"sessionId"`
				} `json:"result"`
			}
			if bytes.Contains(data[:min(len(data), 200)], []byte(`"result"`)) && json.Unmarshal(data, &m) == nil && m.Result.SessionID != "" {
				w.stream(m.Result.SessionID)
			}
			w.write(data)
			return true
		})
	})
}

// A front door serves HTTP/1.1 and HTTP/2 on one port, says how it is, and its WebSocket
// wants initialize first.
func TestWebEndpoints(t *testing.T) {
	t.Parallel()
	f := startFleet(t, nil)
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/": http.StatusNotFound, "/acp": http.StatusNotAcceptable} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.doors[0].web+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body) // shown only
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	c, _, err := websocket.Dial(t.Context(), "ws://"+f.doors[0].web+"/acp", nil) //nolint:bodyclose // of a response that has none
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusProtocolError {
		t.Errorf("%v", err)
	}
}

// A session goes on whatever its client comes by, and its conversation with it.
func TestAcrossTransports(t *testing.T) {
	t.Parallel()
	f := startFleet(t, nil)
	session, cwd := "", ""
	for i, transport := range transports {
		c := f.client(t, transport)
		if session == "" {
			session = c.session("")
			cwd = c.cwd(session)
		} else {
			from := c.count()
			m, at := c.nthAnswer(c.start("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, session, cwd)), 0)
			if m.Error != nil {
				t.Fatalf("%s: %s", transport, m.Error)
			}
			if got, want := text(c.received(from, at), "agent_message_chunk"), strings.Join(transports[:i], ""); got != want {
				t.Errorf("%s: loaded %q, want %q", transport, got, want)
			}
		}
		m, _ := c.turn(session, "echo "+transport)
		wantStop(t, m, "end_turn")
		c.close()
	}
}
