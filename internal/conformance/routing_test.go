package conformance

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"raiderfleet/worker"
)

// capable is a client at front door n that has said what it can do.
func (f *fleet) capable(t *testing.T, transport string, n int, capabilities string) *client {
	t.Helper()
	c := newClient(t, f.dial(t, transport, n))
	if m := c.call("initialize", `{"protocolVersion":1,"clientCapabilities":`+capabilities+`}`); m.Error != nil {
		t.Fatalf("initialize: %s", m.Error)
	}
	return c
}

const canAll = `{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true,"elicitation":{"form":{},"url":{}}}`

// request waits for a request of the raider.
func (c *client) request(from int, method string) (message, int) {
	c.tb.Helper()
	return c.await(from, "a request "+method, func(m message) bool { return m.Method == method && len(m.ID) > 0 })
}

func (c *client) result(m message, result string) {
	c.tb.Helper()
	c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + "}\n")
}

// answered is the text of a whole turn, whose requests f answers in the order of methods.
func (c *client) serving(session, text string, f func(message), methods ...string) string {
	c.tb.Helper()
	from := c.count()
	id := c.prompt(session, text)
	at := from
	for _, method := range methods {
		var m message
		m, at = c.request(at, method)
		f(m)
		at++
	}
	m, end := c.nthAnswer(id, 0)
	wantStop(c.tb, m, "end_turn")
	return textOf(c.tb, c.received(from, end))
}

// textOf is what the raider said.
func textOf(tb testing.TB, all []message) string {
	tb.Helper()
	var b strings.Builder
	for _, m := range all {
		if m.Method != "session/update" {
			continue
		}
		u := decode[struct {
			Update struct {
				Kind    string          `json:"sessionUpdate"`
				Content json.RawMessage `json:"content"`
			} `json:"update"`
		}](m.Params).Update
		if u.Kind == "agent_message_chunk" {
			b.WriteString(decode[struct {
				Text string `json:"text"`
			}](u.Content).Text)
		}
	}
	return b.String()
}

func wantEqualJSON(t *testing.T, got, want string) {
	t.Helper()
	parse := func(text string) (v any) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber() // 1.0 is not 1
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v: %.200s", err, text)
		}
		return v
	}
	if !reflect.DeepEqual(parse(got), parse(want)) {
		t.Errorf("got  %.500s\nwant %.500s", got, want)
	}
}

// The raider is told in initialize what the client said that it can do.
func TestCapabilitiesReachTheRaider(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.capable(t, transport, 0, `{"fs":{"readTextFile":true,"x":1.0},"new":{"n":9007199254740993},"auth":{"terminal":true},"_meta":{"a":1e400}}`)
		wantEqualJSON(t, c.serving(c.session(""), "can", nil),
			`{"fs":{"readTextFile":true,"x":1.0},"new":{"n":9007199254740993},"_meta":{"a":1e400},"terminal":false}`)
		c = f.capable(t, transport, 0, `null`)
		wantEqualJSON(t, c.serving(c.session(""), "can", nil), `{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false}`)
	})
}

// A raider's request reaches the client that sent the prompt, and its answer the raider,
// value for value; a session that the raider named otherwise is that of its process.
func TestRaiderAsksItsClient(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.capable(t, transport, 0, canAll)
		session := c.session("")
		got := c.serving(session, `call fs/read_text_file {"path":"/a","line":1,"x":{"n":1.0,"big":9007199254740993},"sessionId":"a sub-agent's"}`, func(m message) {
			wantEqualJSON(t, string(m.Params), `{"path":"/a","line":1,"x":{"n":1.0,"big":9007199254740993},"sessionId":`+quoted(session)+`}`)
			c.result(m, `{"content":"ä\u0000<&>","y":[1e400,-0.0]}`)
		}, "fs/read_text_file")
		wantEqualJSON(t, got, `{"content":"ä\u0000<&>","y":[1e400,-0.0]}`)

		// Whatever the client answers as an error is the raider's to read.
		got = c.serving(session, `call fs/write_text_file {"path":"/a","content":"x"}`, func(m message) {
			c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32002,"message":"no such file"}}` + "\n")
		}, "fs/write_text_file")
		if got != "error -32002: no such file" {
			t.Errorf("the raider got %q", got)
		}

		// An extension is asked for, too: nobody says beforehand who knows it.
		got = c.serving(session, `call _x/y {"a":1}`, func(m message) { c.result(m, `{"b":2}`) }, "_x/y")
		wantEqualJSON(t, got, `{"b":2}`)
	})
}

// What is too large for a message goes by reference, both ways.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.capable(t, transport, 0, canAll)
		session := c.session("")
		large := strings.Repeat("0123456789abcdef", 3<<16)
		got := c.serving(session, `call fs/write_text_file {"path":"/a","content":"`+large+`"}`, func(m message) {
			if content := decode[struct {
				Content string `json:"content"`
			}](m.Params).Content; content != large {
				t.Errorf("%d bytes came, want %d", len(content), len(large))
			}
			c.result(m, `{"content":"`+large+`"}`)
		}, "fs/write_text_file")
		if got != `{"content":"`+large+`"}` {
			t.Errorf("%d bytes came back", len(got))
		}
	})
}

// A client that has not said that it can, or has answered that it can't, is not asked; where
// no other can, the raider is told at once.
func TestUnableClients(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.capable(t, transport, 0, `{"fs":{"readTextFile":true}}`)
		session := c.session("")
		for _, method := range []string{"fs/write_text_file", "terminal/create", "elicitation/create"} {
			if got := c.serving(session, `call `+method+` {"mode":"form"}`, nil); got != "error -32601: no client of this session can "+method {
				t.Errorf("%s: the raider got %q", method, got)
			}
		}
		no := func(m message) {
			c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"what?"}}` + "\n")
		}
		for _, method := range []string{"fs/read_text_file", "_x/y"} {
			want := "error -32601: no client of this session can " + method
			if got := c.serving(session, `call `+method+` {"path":"/a"}`, no, method); got != want {
				t.Errorf("%s: the raider got %q", method, got)
			}
			from := c.count()
			if got := c.serving(session, `call `+method+` {"path":"/a"}`, nil); got != want {
				t.Errorf("%s again: the raider got %q", method, got)
			}
			for _, m := range c.received(from, -1) {
				if m.Method == method {
					t.Errorf("%s: asked again", method)
				}
			}
		}
	})
}

// Where the client that sent the prompt can't, another of the session's is asked, at
// whichever front door; what it made is its own from then on.
func TestAnotherClientIsAsked(t *testing.T) {
	t.Parallel()
	f := startFleet(t, func(s *settings) { s.doors = 2 })
	a := f.capable(t, "tcp", 0, `{}`)
	session := a.session("")
	b := f.capable(t, "tcp", 1, canAll)
	if m := b.call("session/load", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(a.cwd(session))+`,"mcpServers":[]}`); m.Error != nil {
		t.Fatal(string(m.Error))
	}
	at := 0
	turn := func(text, method, result string) string {
		from := a.count()
		id := a.prompt(session, text)
		var m message
		m, at = b.request(at, method)
		at++
		b.result(m, result)
		m, end := a.nthAnswer(id, 0)
		wantStop(t, m, "end_turn")
		return textOf(t, a.received(from, end))
	}
	wantEqualJSON(t, turn(`call terminal/create {"command":"ls"}`, "terminal/create", `{"terminalId":"t1"}`), `{"terminalId":"t1"}`)
	wantEqualJSON(t, turn(`call terminal/output {"terminalId":"t1"}`, "terminal/output", `{"output":"x","truncated":false}`), `{"output":"x","truncated":false}`)

	// A terminal stays with the client that has it, whoever sends the prompt.
	c := f.capable(t, "tcp", 0, canAll)
	if m := c.call("session/load", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(a.cwd(session))+`,"mcpServers":[]}`); m.Error != nil {
		t.Fatal(string(m.Error))
	}
	from := c.count()
	id := c.prompt(session, `call terminal/wait_for_exit {"terminalId":"t1"}`)
	m, next := b.request(at, "terminal/wait_for_exit")
	at = next + 1
	b.result(m, `{"exitCode":0}`)
	m, end := c.nthAnswer(id, 0)
	wantStop(t, m, "end_turn")
	wantEqualJSON(t, textOf(t, c.received(from, end)), `{"exitCode":0}`)
	if got := c.serving(session, `call terminal/kill {"terminalId":"t2"}`, nil); got != "error -32602: no such terminal" {
		t.Errorf("of a terminal that nobody has: %q", got)
	}
	b.close()
	if got := c.serving(session, `call terminal/output {"terminalId":"t1"}`, nil); got != "error -32603: the client has gone" {
		t.Errorf("of a client that has gone: %q", got)
	}
}

// A client that goes with a request is an error for the raider, and never a hang; a turn
// that is cancelled takes its requests back.
func TestClientGoesWithARequest(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		a := f.capable(t, transport, 0, canAll)
		session := a.session("")
		b := f.capable(t, transport, 0, `{}`)
		load := `{"sessionId":` + quoted(session) + `,"cwd":` + quoted(a.cwd(session)) + `,"mcpServers":[]}`
		if m := b.call("session/load", load); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		a.prompt(session, `call terminal/create {"command":"x"}`)
		a.request(0, "terminal/create")
		a.close()
		b.await(0, "what the raider got", func(m message) bool {
			return strings.Contains(string(m.Params), "error -32603: the client has gone")
		})

		c := f.capable(t, transport, 0, canAll)
		if m := c.call("session/load", load); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		from := c.count()
		id := c.prompt(session, `call elicitation/create {"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}}}`)
		asked, _ := c.request(from, "elicitation/create")
		c.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
		c.await(from, "the request is taken back", func(m message) bool {
			return m.Method == "$/cancel_request" && string(decode[struct {
				ID json.RawMessage `json:"requestId"`
			}](m.Params).ID) == string(asked.ID)
		})
		wantStop(t, c.answer(id), "cancelled")
	})
}

// Forms and pages belong to the client that was asked, their end too.
func TestElicitationComplete(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.capable(t, transport, 0, canAll)
		session := c.session("")
		c.serving(session, `call elicitation/create {"mode":"url","message":"?","url":"https://example.org/","elicitationId":"e1"}`,
			func(m message) { c.result(m, `{"action":"accept"}`) }, "elicitation/create")
		other := f.capable(t, transport, 0, canAll)
		if m := other.call("session/load", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(c.cwd(session))+`,"mcpServers":[]}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		from, others := c.count(), other.count()
		other.serving(session, `notify elicitation/complete {"elicitationId":"e1"}`, nil)
		m, _ := c.await(from, "the end of the elicitation", func(m message) bool { return m.Method == "elicitation/complete" })
		if len(m.ID) > 0 {
			t.Errorf("it has the id %s", m.ID)
		}
		for _, m := range other.received(others, -1) {
			if m.Method == "elicitation/complete" {
				t.Error("the other client was told, too")
			}
		}
	})
}

// A raider's extension notifications go to all that are there, between its updates as it
// wrote them.
func TestExtensionNotifications(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		for n := range 3 {
			_, all := c.turn(session, fmt.Sprintf(`notify _x/changed {"n":%d.0}`, n))
			found := 0
			for _, m := range all {
				if m.Method == "_x/changed" {
					found++
					wantEqualJSON(t, string(m.Params), fmt.Sprintf(`{"n":%d.0,"sessionId":%s}`, n, quoted(session)))
				}
			}
			if found != 1 {
				t.Errorf("turn %d: %d notifications", n, found)
			}
		}
		// None of them is a part of the conversation.
		other := f.client(t, transport)
		if m := other.call("session/load", `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(c.cwd(session))+`,"mcpServers":[]}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		for _, m := range other.received(0, -1) {
			if m.Method == "_x/changed" {
				t.Error("a load showed it again")
			}
		}
	})
}

// client_methods: refuse tells the raider so, and asks nobody.
func TestClientMethodsRefuse(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *settings) { s.worker.Raiders[0].ClientMethods = worker.ClientMethodsRefuse }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.capable(t, transport, 0, canAll)
		session := c.session("")
		wantEqualJSON(t, c.serving(session, "can", nil), `{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false}`)
		if got := c.serving(session, `call fs/read_text_file {"path":"/a"}`, nil); !strings.HasPrefix(got, "error -32601") {
			t.Errorf("the raider got %q", got)
		}
	})
}
