package acphttp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
)

const prompt = `{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s1","prompt":"%s"}}`

// A whole conversation as the TypeScript SDK has it: one POST after the other, the session's
// stream when its id is known, the permission in the midst of the turn.
func TestConversation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	conn := s.initialize()
	s.post(conn, `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}`)
	own := s.open(conn, "") // what was sent before is kept for it
	own.want(`{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s1"}}`)
	s.post(conn, fmt.Sprintf(prompt, 2, "ask"), headerSession, "s1")
	session := s.open(conn, "s1")
	session.want(`"text":"ask"`)
	ask := session.next()
	id := look([]byte(ask)).id
	if !strings.Contains(ask, "session/request_permission") || id == "" {
		t.Fatalf("%s is no question", ask)
	}
	s.post(conn, `{"jsonrpc":"2.0","id":`+id+`,"result":{"chosen":true}}`)
	session.want(`{\"chosen\":true}`, `{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}`)
	s.post(conn, `{"jsonrpc":"2.0","id":3,"method":"session/list"}`)
	own.want(`"id":3,"result":{"sessions":[]}`)
	s.post(conn, `{"jsonrpc":"2.0","id":4,"method":"no/such","params":{}}`)
	own.want(`"id":4,"error"`)
}

// A question that is withdrawn is so on the stream that had it, behind it.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	conn := s.initialize()
	session := s.open(conn, "s1")
	s.post(conn, fmt.Sprintf(prompt, 1, "withdraw"))
	session.want("withdraw", "session/request_permission")
	rest := session.next() + session.next() + session.next()
	for _, want := range []string{"$/cancel_request", "withdrawn", `"id":1`} {
		if !strings.Contains(rest, want) {
			t.Errorf("%s lacks %s", rest, want)
		}
	}
}

// The answer to a load is on the session's stream behind what it replays, whether the POST
// named the session or its params do; the stream may be opened before the session is known.
func TestLoad(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for _, headers := range [][]string{nil, {headerSession, "s1"}} {
		conn := s.initialize()
		session := s.open(conn, "s1")
		s.post(conn, `{"jsonrpc":"2.0","id":"a","method":"session/load","params":{"sessionId":"s1"}}`, headers...)
		for i := range 20 {
			session.want(fmt.Sprintf(`"old %d"`, i))
		}
		session.want(`"id":"a","result":{}`)
	}
}

// What is about a session whose stream nobody reads is answered on the connection's.
func TestAnswerWhereSomebodyReads(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	conn := s.initialize()
	own := s.open(conn, "")
	remove := `{"jsonrpc":"2.0","id":%d,"method":"session/delete","params":{"sessionId":"s1"}}`
	s.post(conn, fmt.Sprintf(remove, 1), headerSession, "s1")
	own.want(`"id":1`)
	session := s.open(conn, "s1")
	s.post(conn, fmt.Sprintf(remove, 2), headerSession, "s1")
	session.want(`"id":2`)
}

// A stream goes on where it was when it is opened again; a second one is refused meanwhile.
func TestStreamAgain(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	conn := s.initialize()
	session := s.open(conn, "s1")
	s.post(conn, fmt.Sprintf(prompt, 1, "a"))
	session.want(`"a"`, `"id":1`)
	if r := s.do("GET", Endpoint, "", "Accept", "text/event-stream", headerConnection, conn, headerSession, "s1"); r.StatusCode != 409 {
		t.Errorf("a second stream: %s", r.Status)
	}
	session.stop()
	// The server learns of the end a moment later; what it writes before is lost, as on any
	// connection that breaks.
	c := s.h.find(conn)
	natstest.Eventually(t, patience, "the stream is free", func() (bool, any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.streams["s1"].isOpen(), "open"
	})
	s.post(conn, fmt.Sprintf(prompt, 2, "b"))
	s.open(conn, "s1").want(`"b"`, `"id":2`)
}

// A stream that nobody reads holds up its own session's turn, keeps a bounded amount, and
// has everything when it is read; other connections don't wait.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.StreamBytes = 10_000 })
	conn, other := s.initialize(), s.initialize()
	s.post(conn, fmt.Sprintf(prompt, 1, "fill"))
	second := s.open(other, "s1")
	s.post(other, fmt.Sprintf(prompt, 1, "b"))
	second.want(`"b"`, `"id":1`)
	c := s.h.find(conn)
	c.mu.Lock()
	st := c.streamLocked("s1")
	c.mu.Unlock()
	natstest.Eventually(t, patience, "the stream is full", func() (bool, any) {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.bytes >= 10_000, st.bytes
	})
	st.mu.Lock()
	if st.bytes > 12_000 {
		t.Errorf("%d bytes are kept", st.bytes)
	}
	st.mu.Unlock()
	session := s.open(conn, "s1")
	session.want(`"fill"`)
	for i := range 100 {
		session.want(fmt.Sprintf(`"%dx`, i))
	}
	session.want(`"id":1`)
}

// Statuses, headers and bodies of what isn't served.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.MaxMessageBytes = 1000 })
	conn := s.initialize()
	c := []string{"Content-Type", jsonType, headerConnection, conn}
	list := `{"jsonrpc":"2.0","id":9,"method":"session/list"}`
	for _, tc := range []struct {
		what, method, body string
		headers            []string
		status             int
		text               string
	}{
		{"another content type", "POST", list, []string{"Content-Type", "text/plain", headerConnection, conn}, 415, "application/json"},
		{"no content type", "POST", list, []string{headerConnection, conn}, 415, ""},
		{"a charset", "POST", list, []string{"Content-Type", jsonType + "; charset=utf-8", headerConnection, conn}, 202, ""},
		{"no JSON", "POST", `{"jsonrpc":`, c, 400, `"code":-32700`},
		{"no UTF-8", "POST", "{\"a\":\"\xff\"}", c, 400, `"code":-32700`},
		{"a batch", "POST", " [" + list + "]", c, 501, `"code":-32600`},
		{"a scalar", "POST", "1", c, 400, `"code":-32600`},
		{"too large", "POST", `{"a":"` + strings.Repeat("x", 1000) + `"}`, c, 413, `"code":-32600`},
		{"no connection", "POST", list, []string{"Content-Type", jsonType}, 400, headerConnection},
		{"initialize as a notification", "POST", `{"jsonrpc":"2.0","method":"initialize"}`, []string{"Content-Type", jsonType}, 400, headerConnection},
		{"an unknown connection", "POST", list, []string{"Content-Type", jsonType, headerConnection, "x"}, 404, ""},
		{"two sessions", "POST", fmt.Sprintf(prompt, 1, "x"), append(c, headerSession, "s2"), 400, "not the same"},
		{"another version", "POST", list, append(c, headerVersion, "2"), 400, headerVersion},
		{"the version", "POST", list, append(c, headerVersion, "1"), 202, ""},
		{"no stream wanted", "GET", "", []string{headerConnection, conn, "Accept", jsonType}, 406, "event-stream"},
		{"a stream of nothing", "GET", "", []string{"Accept", "text/event-stream"}, 400, headerConnection},
		{"a stream of an unknown connection", "GET", "", []string{"Accept", "text/event-stream", headerConnection, "x"}, 404, ""},
		{"another method", "PUT", "", c, 405, "POST"},
		{"a foreign origin", "POST", hello, []string{"Content-Type", jsonType, "Origin", "http://evil.example"}, 403, "origin"},
		{"an origin on another port", "POST", hello, []string{"Content-Type", jsonType, "Origin", "http://127.0.0.1:1"}, 403, "origin"},
		{"an origin that is none", "POST", hello, []string{"Content-Type", jsonType, "Origin", "null"}, 403, "origin"},
		{"the own origin", "POST", hello, []string{"Content-Type", jsonType, "Origin", s.url}, 200, ""},
		{"a host that was rebound", "POST", hello, []string{"Content-Type", jsonType, "Host", "evil.example"}, 403, "host"},
		{"localhost", "POST", hello, []string{"Content-Type", jsonType, "Host", "localhost:80"}, 200, ""},
		{"an unknown connection's end", "DELETE", "", []string{headerConnection, "x"}, 404, ""},
		{"initialize that fails", "POST", `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"fail":"yes"}}`, []string{"Content-Type", jsonType}, 200, `"id":7,"error"`},
		{"the connection's end", "DELETE", "", c, 202, ""},
		{"an ended connection", "POST", list, c, 404, ""},
	} {
		r := s.do(tc.method, Endpoint, tc.body, tc.headers...)
		if got := all(t, r); r.StatusCode != tc.status || !strings.Contains(got, tc.text) {
			t.Errorf("%s: %s %q", tc.what, r.Status, got)
		}
		if r.StatusCode == 405 && r.Header.Get("Allow") != "GET, POST, DELETE" {
			t.Errorf("Allow: %s", r.Header.Get("Allow"))
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.Beat = 10 * time.Millisecond })
	r := s.do("POST", Endpoint, hello, "Content-Type", jsonType)
	if cookies := r.Cookies(); len(cookies) != 1 || cookies[0].Name != affinityCookie || cookies[0].Value != "fd-1" || !cookies[0].HttpOnly {
		t.Errorf("cookies %v", cookies)
	}
	// The headers come before any event, and a silent stream is written to.
	e := s.open(r.Header.Get(headerConnection), "")
	if e.resp.Header.Get("X-Accel-Buffering") != "no" || e.resp.Header.Get("Cache-Control") != "no-cache" || e.resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("%v", e.resp.Header)
	}
	select {
	case line := <-e.come:
		if !strings.HasPrefix(line, ":") {
			t.Errorf("a silent stream had %q", line)
		}
	case <-time.After(patience):
		t.Error("nothing came")
	}
}

// HTTP/2 without TLS, known beforehand.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+Endpoint, strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", jsonType)
	resp, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ProtoMajor != 2 || resp.StatusCode != 200 {
		t.Errorf("%s %s", resp.Proto, resp.Status)
	}
}

// A connection that nothing uses ends; an open stream uses it.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.Idle = 50 * time.Millisecond })
	kept := s.initialize()
	e := s.open(kept, "")
	left := s.initialize()
	natstest.Eventually(t, patience, "it ends", func() (bool, any) { return s.h.find(left) == nil, "there" })
	<-time.After(100 * time.Millisecond) // more than it would have
	s.post(kept, `{"jsonrpc":"2.0","id":1,"method":"session/list"}`)
	e.want(`"id":1`)
}

func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.MaxConnections = 1 })
	conn := s.initialize()
	if r := s.do("POST", Endpoint, hello, "Content-Type", jsonType); r.StatusCode != 503 || !strings.Contains(all(t, r), "too many connections") {
		t.Errorf("%s", r.Status)
	}
	s.do("DELETE", Endpoint, "", headerConnection, conn)
	natstest.Eventually(t, patience, "its place is free again", func() (bool, any) {
		r := s.do("POST", Endpoint, hello, "Content-Type", jsonType)
		return r.StatusCode == 200, r.Status
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var why error
	s := start(t, func(o *Options) { o.Ready = func() error { return why } })
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/other": 404} {
		if r := s.do("GET", path, ""); r.StatusCode != want {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	why = errors.New("NATS is away")
	if r := s.do("GET", "/readyz", ""); r.StatusCode != 503 || all(t, r) != "NATS is away\n" {
		t.Errorf("%s", r.Status)
	}
}

// The end of the handler ends connections and their streams.
func TestClose(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	e := s.open(s.initialize(), "")
	s.h.Close()
	for range e.come {
		continue // until its end
	}
	if r := s.do("POST", Endpoint, hello, "Content-Type", jsonType); r.StatusCode != 503 {
		t.Errorf("%s", r.Status)
	}
}

// A message in several lines is one; what is no JSON does not become it.
func TestLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"{\n \"a\":\r\n 1}": "{  \"a\":   1}\n", "{\"a\n\"}": "{\"a\x01\"}\n", "{}": "{}\n",
	} {
		if got := string(line([]byte(in))); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
