package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// What a peer may get wrong is answered, and the connection goes on.
func TestFraming(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	cases := []struct {
		name, send string
		id         string // of the answer; empty when there is none
		code       int64
	}{
		{"not JSON", "hello", "null", -32700},
		{"half an object", `{"jsonrpc":"2.0","id":1,`, "null", -32700},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", "null", -32700},
		{"number", "42", "null", -32600},
		{"string", `"initialize"`, "null", -32600},
		{"null", "null", "null", -32600},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}]`, "null", -32600},
		{"empty batch", `[]`, "null", -32600},
		{"an object that is no JSON-RPC", `{"level":"info","msg":"started"}`, "null", -32600},
		{"neither method nor result", `{"jsonrpc":"2.0"}`, "null", -32600},
		{"a line over the limit", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"` + strings.Repeat("x", limit) + `"}}`, "null", -32600},
		{"unknown request", `{"jsonrpc":"2.0","id":"a","method":"session/dance","params":{}}`, `"a"`, -32601},
		{"unknown extension", `{"jsonrpc":"2.0","id":"b","method":"_dance","params":{}}`, `"b"`, -32601},
		{"no params", `{"jsonrpc":"2.0","id":"c","method":"session/new"}`, `"c"`, -32602},
		{"unknown notification", `{"jsonrpc":"2.0","method":"session/dance","params":{}}`, "", 0},
		{"unknown extension notification", `{"jsonrpc":"2.0","method":"_dance"}`, "", 0},
		{"cancel of a request that is not open", `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":99}}`, "", 0},
		{"cancel of an unknown session", `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"nobody"}}`, "", 0},
		{"response to nothing", `{"jsonrpc":"2.0","id":"zz","result":{}}`, "", 0},
		{"blank line", "  ", "", 0},
		{"carriage return", `{"jsonrpc":"2.0","id":"d","method":"session/dance"}` + "\r", `"d"`, -32601},
	}
	change := func(s *settings) { s.frontDoor.MaxLineBytes = limit }
	onLines(t, change, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		for i, tc := range cases {
			from := c.count()
			c.write(tc.send + "\n")
			if strings.HasPrefix(tc.id, `"`) {
				c.answer(tc.id) // requests are answered in any order
			}
			// What follows is served, and shows that no further answer comes.
			ping := fmt.Sprintf(`"ping-%d"`, i)
			c.write(`{"jsonrpc":"2.0","id":` + ping + `,"method":"_ping"}` + "\n")
			_, at := c.nthAnswer(ping, 0)
			got := c.received(from, at)
			if tc.id == "" {
				if len(got) != 0 {
					t.Errorf("%s was answered: %s", tc.name, got[0].Error)
				}
				continue
			}
			if len(got) != 1 || string(got[0].ID) != tc.id || got[0].Error == nil || decode[fault](got[0].Error).Code != tc.code {
				t.Errorf("%s: got %+v, want one error %d with id %s", tc.name, got, tc.code, tc.id)
			}
		}
	})
}

func TestBeforeInitialize(t *testing.T) {
	t.Parallel()
	onLines(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := newClient(t, f.dial(t, transport, 0))
		for _, method := range []string{"session/new", "session/prompt", "session/load"} {
			wantFault(t, c.call(method, `{"cwd":"/","mcpServers":[]}`), -32600, "")
		}
		for params, want := range map[string]int{`{}`: 1, `{"protocolVersion":1}`: 1, `{"protocolVersion":99}`: 1} {
			c := newClient(t, f.dial(t, transport, 0))
			m := c.call("initialize", params)
			got := decode[struct {
				Version int `json:"protocolVersion"`
				Info    struct {
					Name string `json:"name"`
				} `json:"agentInfo"`
				Agent struct {
					Load   bool            `json:"loadSession"`
					Prompt map[string]bool `json:"promptCapabilities"`
				} `json:"agentCapabilities"`
			}](m.Result)
			if got.Version != want || got.Info.Name != "raiderfleet" || !got.Agent.Load {
				t.Errorf("initialize %s answered %s", params, m.Result)
			}
			for _, key := range []string{"image", "audio", "embeddedContext"} {
				if _, there := got.Agent.Prompt[key]; !there {
					t.Errorf("promptCapabilities has no %s: %s", key, m.Result)
				}
			}
		}
	})
}

// Ids are opaque: they come back with their type and text.
func TestIDs(t *testing.T) {
	t.Parallel()
	onLines(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		ids := []string{`0`, `-1`, `1.5`, `1e3`, `9007199254740993`, `18446744073709551616`, `"100"`, `100`, `""`, `"日本"`, `"\u0041"`, `null`, `"rf-1"`}
		for _, id := range ids {
			c.write(c.line(id, "session/prompt", promptParams(session, "echo "+id)))
			if m := c.answer(id); m.Error != nil {
				t.Errorf("id %s: %s", id, m.Error)
			}
		}
		// The same, of a method that fails.
		for _, id := range ids {
			before := c.answered(id)
			c.write(c.line(id, "_nothing", "{}"))
			m, _ := c.nthAnswer(id, before)
			wantFault(t, m, -32601, "")
		}
		if got := text(c.received(0, -1), "agent_message_chunk"); got != strings.Join(ids, "") {
			t.Errorf("the raider said %q", got)
		}
	})
}

// Every client may start at 1.
func TestSameIDs(t *testing.T) {
	t.Parallel()
	const clients = 50
	change := func(s *settings) { s.worker.Capacity, s.worker.MaxWarm = 8, 60 }
	onLines(t, change, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		var all sync.WaitGroup
		for i := range clients {
			c := newClient(t, f.dial(t, transport, 0))
			all.Go(func() {
				cwd := "/"
				// initialize, session/new and the prompt, all with id 1.
				c.write(c.line("1", "initialize", `{"protocolVersion":1}`))
				if m, _ := c.nthAnswer("1", 0); m.Error != nil {
					t.Errorf("initialize: %s", m.Error)
					return
				}
				c.write(c.line("1", "session/new", `{"cwd":`+quoted(cwd)+`,"mcpServers":[]}`))
				m, _ := c.nthAnswer("1", 1)
				if m.Error != nil {
					t.Errorf("session/new: %s", m.Error)
					return
				}
				session := decode[struct {
					ID string `json:"sessionId"`
				}](m.Result).ID
				want := fmt.Sprintf("I am %d", i)
				c.write(c.line("1", "session/prompt", promptParams(session, "echo "+want)))
				m, at := c.nthAnswer("1", 2)
				if m.Error != nil {
					t.Errorf("session/prompt: %s", m.Error)
					return
				}
				if got := text(c.received(0, at), "agent_message_chunk"); got != want {
					t.Errorf("client %d got %q", i, got)
				}
			})
		}
		all.Wait()
	})
}

// No character is harmed where a read ends.
func TestSplitAtEveryByte(t *testing.T) {
	t.Parallel()
	const words = "日本語 한국어 🦊👩‍👩‍👧 é\u0301 \U0010FFFD"
	onLines(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		line := c.line(`"x"`, "session/prompt", promptParams(session, "echo "+words))
		if !utf8.ValidString(line) || len(line) == len([]rune(line)) {
			t.Fatal("the line would prove nothing")
		}
		split := func(pieces ...string) {
			t.Helper()
			n := c.answered(`"x"`)
			for _, p := range pieces {
				c.write(p)
			}
			m, at := c.nthAnswer(`"x"`, n)
			wantStop(t, m, "end_turn")
			if got := text(c.received(at-1, at), "agent_message_chunk"); got != words {
				t.Fatalf("got %q", got)
			}
		}
		again := func() string { return c.line(`"x"`, "session/prompt", promptParams(session, "echo "+words)) }
		step := 1
		if testing.Short() {
			step = 3
		}
		split(line)
		for at := strings.Index(line, "echo "); at <= strings.LastIndex(line, `"}]`); at += step {
			again()
			split(line[:at], line[at:])
		}
		again()
		var single []string
		for i := range len(line) {
			single = append(single, line[i:i+1])
		}
		split(single...)
	})
}

// Unknown fields and number texts of an update come through as they are.
func TestUpdatesAreRaw(t *testing.T) {
	t.Parallel()
	onLines(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		const raw = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x","_meta":{"big":12345678901234567890,"exact":1.10,"esc":"\u00e9"}},"unknown":[1e2,null]}`
		m, updates := c.turn(session, "update "+raw)
		wantStop(t, m, "end_turn")
		for _, u := range updates {
			got := decode[struct {
				Update json.RawMessage `json:"update"`
			}](u.Params).Update
			if string(got) == raw {
				return
			}
		}
		t.Errorf("the update did not come through unchanged: %+v", updates)
	})
}
