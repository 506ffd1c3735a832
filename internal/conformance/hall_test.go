package conformance

import (
	"bufio"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hallClient does what the hall's own client does, Langertha::Raider::ACP::Client 0.504: one
// blocking socket, ids that count from 1, params always an object, no mcpServers, and the
// first frame whose id is the pending one, compared as text, is the answer, whatever it is.
// All else is swallowed; while a prompt is pending, updates are looked at.
type hallClient struct {
	tb   testing.TB
	conn net.Conn
	in   *bufio.Reader
	next int
}

func (f *fleet) hallClient(tb testing.TB) *hallClient {
	tb.Helper()
	conn := f.dial(tb, "tcp", 0)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	return &hallClient{tb: tb, conn: conn, in: bufio.NewReaderSize(conn, 1<<20), next: 1}
}

// frame is what the client decodes of a line.
type frame struct {
	ID     any             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result map[string]any  `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// send writes one request; the encoder of the original gives its members in any order.
func (c *hallClient) send(method, params string) (id string) {
	c.tb.Helper()
	id = strconv.Itoa(c.next)
	c.next++
	members := []string{`"params":` + params, `"jsonrpc":"2.0"`, `"id":` + id, `"method":"` + method + `"`}
	n := c.next % len(members)
	line := "{" + strings.Join(append(members[n:len(members):len(members)], members[:n]...), ",") + "}\n"
	if _, err := c.conn.Write([]byte(line)); err != nil {
		c.tb.Fatal(err)
	}
	return id
}

// answer reads on until a frame has the id; update sees the updates before it.
func (c *hallClient) answer(id string, update func(json.RawMessage)) frame {
	c.tb.Helper()
	for {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			c.tb.Fatalf("waiting for the answer to %s: %v", id, err)
		}
		var m frame
		if json.Unmarshal(line, &m) != nil {
			c.tb.Fatalf("no JSON: %s", line)
		}
		text := ""
		switch v := m.ID.(type) {
		case string:
			text = v
		case float64:
			text = strconv.FormatFloat(v, 'f', -1, 64)
		}
		if m.ID != nil && text == id {
			return m
		}
		if m.Method == "session/update" && update != nil {
			update(m.Params)
		}
	}
}

func (c *hallClient) call(method, params string) frame {
	c.tb.Helper()
	m := c.answer(c.send(method, params), nil)
	if m.Error != nil {
		c.tb.Fatalf("%s: %s", method, m.Error.Message)
	}
	return m
}

// open shakes hands and makes a session.
func (c *hallClient) open(extra string) (session string) {
	c.tb.Helper()
	if hello := c.call("initialize", "{}"); hello.Result["protocolVersion"] != 1.0 {
		c.tb.Fatalf("initialize: %v", hello.Result)
	}
	session, _ = c.call("session/new", `{"cwd":`+quoted(c.tb.TempDir())+extra+`}`).Result["sessionId"].(string)
	if session == "" {
		c.tb.Fatal("session/new: no session")
	}
	return session
}

// prompt runs a turn; on is told what the raider has said so far.
func (c *hallClient) prompt(session, text string, on func(said string)) (frame, string) {
	c.tb.Helper()
	said := ""
	id := c.send("session/prompt", `{"prompt":[{"type":"text","text":`+quoted(text)+`}],"sessionId":"`+session+`"}`)
	m := c.answer(id, func(params json.RawMessage) {
		var u struct {
			Update struct {
				Content json.RawMessage `json:"content"`
			} `json:"update"`
		}
		var content struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(params, &u) == nil && json.Unmarshal(u.Update.Content, &content) == nil {
			said += content.Text
			if on != nil {
				on(said)
			}
		}
	})
	return m, said
}

// ofEachKind runs a test of the hall's client, which knows TCP alone, with raiders of every
// kind.
func ofEachKind(t *testing.T, change func(*settings), test func(*testing.T, *fleet)) {
	t.Helper()
	for kind, kinds := range map[string]func(*settings){"acp": change, "stream": func(s *settings) { s.streamed(t); change(s) }} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, startFleet(t, kinds))
		})
	}
}

// The hall's own client works as it is.
func TestHallClient(t *testing.T) {
	t.Parallel()
	ofEachKind(t, func(s *settings) { s.worker.PermissionTimeout = time.Second }, hallClientWorks)
}

func hallClientWorks(t *testing.T, f *fleet) {
	t.Helper()
	c := f.hallClient(t)
	for _, extra := range []string{"", `,"raiderName":"other"`, `,"raiderName":"1demo"`} {
		session := c.open(extra)
		m, said := c.prompt(session, "echo grüße aus Århus\n", nil)
		if m.Error != nil || m.Result["stopReason"] != "end_turn" || said != "grüße aus Århus\n" {
			t.Errorf("%s: said %q, answered %+v", extra, said, m)
		}
		if m, _ := c.prompt(session, "fail no mead left", nil); m.Error == nil || m.Error.Message != "no mead left" {
			t.Errorf("%s: a failed run is answered %+v", extra, m)
		}
		// It answers no question: the raider is told no in the end, and goes on.
		if m, said := c.prompt(session, "ask", nil); m.Error != nil || m.Result["stopReason"] != "end_turn" || said == "" {
			t.Errorf("%s: with a question left open: said %q, answered %+v", extra, said, m)
		}
	}
}

// Its cancel is a request that waits for its answer, and swallows what comes before that.
func TestHallClientCancels(t *testing.T) {
	t.Parallel()
	ofEachKind(t, func(*settings) {}, hallClientCancels)
}

func hallClientCancels(t *testing.T, f *fleet) {
	t.Helper()
	c := f.hallClient(t)
	session := c.open("")
	// With nothing to cancel it is answered too.
	if m := c.call("session/cancel", `{"sessionId":"`+session+`"}`); len(m.Result) != 0 {
		t.Errorf("session/cancel answered %v", m.Result)
	}
	id := c.send("session/prompt", `{"sessionId":"`+session+`","prompt":[{"type":"text","text":"sleep 60"}]}`)
	var answer *frame
	cancel := c.send("session/cancel", `{"sessionId":"`+session+`"}`)
	for answered := false; !answered || answer == nil; {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m frame
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		switch m.ID {
		case float64(c.next - 1):
			if answered = true; m.Error != nil {
				t.Errorf("request %s: %s", cancel, line)
			}
		case float64(c.next - 2):
			answer = &m
		}
	}
	if answer.Error != nil || answer.Result["stopReason"] != "cancelled" {
		t.Errorf("request %s answered %+v", id, answer)
	}
	// The session goes on.
	if m, said := c.prompt(session, "echo on", nil); m.Error != nil || said != "on" {
		t.Errorf("said %q, answered %+v", said, m)
	}
}
