package frontdoor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

func TestInitialize(t *testing.T) {
	t.Parallel()
	f, _ := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	want := `{"protocolVersion":1,"agentInfo":{"name":"raiderfleet","version":"1.2.3"},"agentCapabilities":{"loadSession":true,` +
		`"promptCapabilities":{"image":false,"audio":false,"embeddedContext":true},"mcpCapabilities":{"http":false,"sse":false},` +
		`"sessionCapabilities":{"close":{},"delete":{},"list":{},"resume":{}}},"authMethods":[]}`
	for _, params := range []string{`{}`, `{"protocolVersion":1}`, `{"protocolVersion":99,"clientCapabilities":{}}`} {
		if got := string(c.call("initialize", params)); got != want {
			t.Errorf("%s: %s", params, got)
		}
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	f, _ := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("astrid")
	server := func(entry string) string { return `{"cwd":"/","mcpServers":[` + entry + `]}` }
	good := `{"name":"a","command":"c","args":[],"env":[{"name":"n","value":"v"}]}`
	prompt := func(blocks string) string { return fmt.Sprintf(`{"sessionId":%q,"prompt":%s}`, s, blocks) }
	cases := []struct {
		method, params string
		code           int64
		says           string
	}{
		{"session/new", `{}`, -32602, "cwd"},
		{"session/new", `[]`, -32602, "object"},
		{"session/new", `{"cwd":"x"}`, -32602, "cwd"},
		{"session/new", `{"cwd":7}`, -32602, "cwd"},
		{"session/new", `{"cwd":"/","mcpServers":{}}`, -32602, "mcpServers"},
		{"session/new", server(good + `,7`), -32602, "mcpServers[1]"},
		{"session/new", server(`{"name":"a","args":[],"env":[]}`), -32602, "mcpServers[0]: command"},
		{"session/new", server(`{"name":"a","command":"c","env":[]}`), -32602, "args"},
		{"session/new", server(`{"name":"a","command":"c","args":[7],"env":[]}`), -32602, "args"},
		{"session/new", server(`{"name":"a","command":"c","args":[],"env":[{}]}`), -32602, "name"},
		{"session/new", server(`{"type":"http","name":"a","headers":[]}`), -32602, "url"},
		{"session/new", server(`{"type":"sse","name":"a","url":"u"}`), -32602, "headers"},
		{"session/new", server(`{"type":"smoke","name":"a"}`), -32602, "type"},
		{"session/new", `{"cwd":"/","additionalDirectories":["x"]}`, -32602, "additionalDirectories[0]"},
		{"session/new", `{"cwd":"/","raiderName":"nobody"}`, -32602, "bjorn, astrid, 7named"},
		{"session/new", `{"cwd":"/","raiderName":"1nobody"}`, -32602, "bjorn, astrid, 7named"},
		{"session/new", `{"cwd":"/","raiderName":"a.b"}`, -32602, "bjorn"},
		{"session/new", `{"cwd":"/","_meta":{"raiderfleet/raider":7}}`, -32602, "_meta"},
		{"session/new", `{"cwd":"/","_meta":{"raiderfleet/slots_own":"yes"}}`, -32602, "_meta"},
		{"session/prompt", `{}`, -32602, "sessionId"},
		{"session/prompt", `{"sessionId":null,"prompt":[]}`, -32602, "sessionId"},
		{"session/prompt", prompt(`"text"`), -32602, "array"},
		{"session/prompt", prompt(`null`), -32602, "array"},
		{"session/prompt", prompt(`[]`), -32602, "empty"},
		{"session/prompt", prompt(`[{"type":"text","text":" \n\u3000"}]`), -32602, "blank"},
		{"session/prompt", prompt(`[{"type":"text"}]`), -32602, "prompt[0]"},
		{"session/prompt", prompt(`[{"type":"smoke"}]`), -32602, "prompt[0]"},
		{"session/prompt", prompt(`[7]`), -32602, "prompt"},
		{"session/prompt", prompt(`[{"type":"image","data":"x","mimeType":"image/png"}]`), -32602, "image"},
		{"session/prompt", prompt(`[{"type":"resource","resource":{}}]`), -32602, "resource"},
		{"session/prompt", `{"sessionId":"gone","prompt":[{"type":"text","text":"x"}]}`, -32002, ""},
		{"session/prompt", `{"sessionId":"a.*","prompt":[{"type":"text","text":"x"}]}`, -32002, ""},
		{"session/load", `{"sessionId":"gone","cwd":"/w"}`, -32002, ""},
		{"session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/other"}`, s), -32602, "cwd"},
		{"session/close", `{"sessionId":"gone"}`, -32002, ""},
		{"session/smoke", `{}`, -32601, "session/smoke"},
		{"_ours", `{}`, -32601, "_ours"},
	}
	for _, tc := range cases {
		result, err := c.try(tc.method, tc.params)
		var e *rpc.Error
		if !errors.As(err, &e) {
			t.Errorf("%s %s: %s, %v", tc.method, tc.params, result, err)
			continue
		}
		if e.Code != tc.code || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%s %s: %v", tc.method, tc.params, e)
		}
		if tc.code == rpc.CodeNotFound && !strings.Contains(string(e.Data), `"sessionId":"`) {
			t.Errorf("%s %s: data %s", tc.method, tc.params, e.Data)
		}
	}
	for _, params := range []string{
		server(good + `,{"type":"http","name":"a","url":"u","headers":[]}`), `{"cwd":"/","mcpServers":null}`,
		`{"cwd":"/","_meta":{"raiderfleet/raider":"astrid"}}`, `{"cwd":"/","unknown":1}`,
	} {
		c.call("session/new", params)
	}
}

func TestInitializeComesFirst(t *testing.T) {
	t.Parallel()
	f, _ := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	for conn := range f.conns {
		conn.mu.Lock()
		conn.initialized = false
		conn.mu.Unlock()
	}
	for _, method := range []string{"session/new", "smoke"} {
		_, err := c.try(method, `{"cwd":"/"}`)
		var e *rpc.Error
		if !errors.As(err, &e) || e.Code != rpc.CodeInvalidRequest {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// What a session is bound to, and where its prompts go.
func TestBinding(t *testing.T) {
	t.Parallel()
	f, o := setup(t, func(c *Config) { c.DefaultRaider = "3astrid" })
	c := connect(t, f, ConnOptions{})
	cases := []struct{ name, raider, slot string }{
		{"", "astrid", "3astrid"}, {"bjorn", "bjorn", ""}, {"1bjorn", "bjorn", "1bjorn"},
		{"7named", "7named", ""},
		{"01bjorn", "bjorn", "1bjorn"}, {"0010bjorn", "bjorn", "10bjorn"}, {"00bjorn", "bjorn", "0bjorn"}, {"17named", "", ""},
	}
	for _, tc := range cases {
		if tc.raider == "" {
			if _, err := f.bind(tc.name); err == nil {
				t.Errorf("%s is bound", tc.name)
			}
			continue
		}
		s := c.session(tc.name)
		var m subjects.SessionMeta
		_, err := o.b.GetJSON(t.Context(), o.f.SessionsBucket(), subjects.MetaKey("local", s), &m)
		o.must(err)
		lane := subjects.SessionLane(s)
		if tc.slot != "" {
			lane = subjects.LaneID("slot-" + tc.slot)
		}
		if string(m.Raider) != tc.raider || m.Slot != tc.slot || m.Lane != lane || m.State != subjects.SessionOpen || m.Cwd != "/w" || m.Class != subjects.AnyClass {
			t.Errorf("%q: %+v", tc.name, m)
		}
	}
	for _, c := range []Config{
		{}, {Raiders: []Raider{{Name: "a b"}}}, {Raiders: []Raider{{Name: "a"}, {Name: "a"}}},
		{Raiders: []Raider{{Name: "a"}}, DefaultRaider: "b"}, {Raiders: []Raider{{Name: "a"}}, OnDisconnect: "smoke"},
	} {
		if _, err := New(o.b, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	f, o, c, s, r := begun(t)
	queued := o.told(subjects.RaiderQueued)
	c.prompt(s, "2", "two")
	second := o.see("bjorn", r.seq+1)
	for e := next(t, queued); e.Prompt != second.h.Prompt; e = next(t, queued) {
	}
	control := o.controlled(r.lane)
	closed := make(chan json.RawMessage, 1)
	go func() { closed <- c.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s)) }()
	if req := next(t, control); req.Op != subjects.ControlCancel || req.Prompt != r.h.Prompt {
		t.Errorf("control request %+v", req)
	}
	var m subjects.SessionMeta
	_, err := o.b.GetJSON(t.Context(), o.f.SessionsBucket(), subjects.MetaKey("local", s), &m)
	o.must(err)
	if m.State != subjects.SessionClosing {
		t.Errorf("state %s while something runs", m.State)
	}
	select {
	case <-closed:
		t.Error("closed while something runs")
	default:
	}
	r.end(subjects.Outcome{State: subjects.RunCancelled})
	for req := next(t, control); req.Op != subjects.ControlClose; req = next(t, control) {
	}
	if got := string(<-closed); got != `{}` {
		t.Errorf("answered %s", got)
	}
	c.await("end 1 " + stoppedTurn)
	c.await("end 2 " + stoppedTurn)
	if _, err := c.try("session/prompt", promptParams(s, "three")); err == nil {
		t.Error("a closed session takes prompts")
	}
	c.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
	if n := f.attachments(); n != 0 {
		t.Errorf("%d attachments to a closed session", n)
	}
	c.load(s) // opens it again
	c.prompt(s, "4", "four")
	r = o.take("bjorn", r.seq+1)
	r.end(ok())
	c.await("end 4 " + endTurn)
}
