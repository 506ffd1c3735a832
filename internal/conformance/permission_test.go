package conformance

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/natstest"
	"raiderfleet/internal/policy"
	"raiderfleet/subjects"
)

// permission is what the tests look at in session/request_permission.
type permission struct {
	Session string `json:"sessionId"`
	Call    struct {
		ID      string          `json:"toolCallId"`
		Title   string          `json:"title"`
		Kind    string          `json:"kind"`
		Status  string          `json:"status"`
		Input   json.RawMessage `json:"rawInput"`
		Content json.RawMessage `json:"content"`
	} `json:"toolCall"`
	Options []struct {
		ID   string `json:"optionId"`
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"options"`
}

// A client is shown what the raider asks about: the call with all that it is about to do,
// the reason as content, and the raider's own options.
func TestPermissionShowsTheCall(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		from := c.count()
		id := c.prompt(session, "ask Delete the sea")
		ask, _ := c.await(from, "the ask", isAsk)
		p := decode[permission](ask.Params)
		if call := p.Call; call.ID == "" || call.Title != "Delete the sea" || call.Kind != "execute" || call.Status != "pending" ||
			string(call.Input) != `{"command":"true"}` || string(call.Content) != `[{"content":{"text":"The demo was told to ask.","type":"text"},"type":"content"}]` {
			t.Errorf("the call is shown as %s", ask.Params)
		}
		options := ""
		for _, o := range p.Options {
			options += o.ID + " " + o.Name + " " + o.Kind + "; "
		}
		if options != "allow_once Allow once allow_once; allow_always Allow always allow_always; reject_once Reject reject_once; " {
			t.Errorf("the options are %s", options)
		}
		c.respond(string(ask.ID), "result", `{"outcome":{"outcome":"selected","optionId":"reject_once"}}`)
		wantStop(t, c.answer(id), "end_turn")
	})
}

func isAsk(m message) bool { return m.Method == "session/request_permission" }

func (c *client) respond(id, member, value string) {
	c.tb.Helper()
	c.write(`{"jsonrpc":"2.0","id":` + id + `,"` + member + `":` + value + "}\n")
}

// Nothing is allowed that nobody allowed.
func TestPermissionAnswers(t *testing.T) {
	t.Parallel()
	selected := func(option string) string {
		return `{"outcome":{"outcome":"selected","optionId":` + quoted(option) + `}}`
	}
	cases := []struct {
		name, kind    string // kind of the option that is chosen
		member, value string // what is answered where no option is chosen
		says          string
	}{
		{"allow once", "allow_once", "", "", "allowed once"},
		{"allow always", "allow_always", "", "", "allowed always"},
		{"reject once", "reject_once", "", "", "rejected"},
		{"unknown option", "", "result", selected("allow_everything"), "rejected"},
		{"reject always, which was not offered", "", "result", selected("reject_always"), "rejected"},
		{"cancelled", "", "result", `{"outcome":{"outcome":"cancelled"}}`, "rejected"},
		{"error", "", "error", `{"code":-32603,"message":"the dialog broke"}`, "rejected"},
		{"method not found", "", "error", `{"code":-32601,"message":"no"}`, "rejected"},
		{"no outcome", "", "result", `{}`, "rejected"},
		{"null", "", "result", `null`, "rejected"},
		{"allowed by name only", "", "result", `{"outcome":"allow_once"}`, "rejected"},
	}
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		for _, tc := range cases {
			session := c.session("") // a rule of an earlier answer must not decide
			from := c.count()
			id := c.prompt(session, "ask")
			ask, _ := c.await(from, "the ask", isAsk)
			if !strings.HasPrefix(string(ask.ID), `"`) {
				t.Errorf("our request's id is %s, no string", ask.ID)
			}
			p := decode[permission](ask.Params)
			if p.Session != session {
				t.Errorf("the ask names session %s, not %s", p.Session, session)
			}
			member, value := tc.member, tc.value
			for _, o := range p.Options {
				if o.Kind == tc.kind {
					member, value = "result", selected(o.ID)
				}
			}
			c.respond(string(ask.ID), member, value)
			m, at := c.nthAnswer(id, 0)
			wantStop(t, m, "end_turn")
			if got := text(c.received(from, at), "agent_message_chunk"); !strings.Contains(got, tc.says) {
				t.Errorf("%s: the raider says %q, want %q", tc.name, got, tc.says)
			}
		}
	})
}

// Nobody answers: the raider is told no in the end, and goes on.
func TestPermissionTimesOut(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(s *settings) { s.worker.PermissionTimeout = 200 * time.Millisecond }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session, from := c.session(""), c.count()
		id := c.prompt(session, "ask")
		ask, _ := c.await(from, "the ask", isAsk)
		m, at := c.nthAnswer(id, 0)
		wantStop(t, m, "end_turn")
		if got := text(c.received(from, at), "agent_message_chunk"); !strings.Contains(got, "rejected") {
			t.Errorf("the raider says %q", got)
		}
		c.await(from, "the ask's withdrawal", func(m message) bool {
			return m.Method == "$/cancel_request" && strings.Contains(string(m.Params), string(ask.ID))
		})
	})
}

// Answers are matched by id, in whichever order they come.
func TestPermissionAnswersInAnyOrder(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		type turn struct{ id, ask, session, want string }
		turns := make([]turn, 3)
		from := c.count()
		for i := range turns {
			session := c.session("")
			begin := c.count()
			turns[i] = turn{id: c.prompt(session, "ask"), session: session, want: "rejected"}
			ask, _ := c.await(begin, "an ask", isAsk)
			turns[i].ask = string(ask.ID)
		}
		turns[1].want = "allowed once"
		for _, i := range []int{2, 0, 1} {
			option := "reject_once"
			if turns[i].want != "rejected" {
				option = "allow_once"
			}
			c.respond(turns[i].ask, "result", `{"outcome":{"outcome":"selected","optionId":"`+option+`"}}`)
		}
		for i, turn := range turns {
			wantStop(t, c.answer(turn.id), "end_turn")
			var own []message
			for _, m := range c.received(from, -1) {
				if strings.Contains(string(m.Params), turn.session) {
					own = append(own, m)
				}
			}
			if got := text(own, "agent_message_chunk"); !strings.Contains(got, turn.want) {
				t.Errorf("raider %d says %q, want %q", i, got, turn.want)
			}
		}
	})
}

// A cancelled turn answers its ask, takes it back, and ends.
func TestPermissionOfACancelledTurn(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		from := c.count()
		id := c.prompt(session, "ask")
		ask, _ := c.await(from, "the ask", isAsk)

		// An ask never blocks another session.
		m, _ := c.turn(c.session(""), "echo meanwhile")
		wantStop(t, m, "end_turn")

		c.notify("session/cancel", `{"sessionId":`+quoted(session)+`}`)
		wantStop(t, c.answer(id), "cancelled")
		c.await(from, "the ask's withdrawal", func(m message) bool {
			return m.Method == "$/cancel_request" && strings.Contains(string(m.Params), string(ask.ID))
		})
	})
}

// The last client gone for reconnect_grace refuses.
func TestPermissionOfAClientThatIsGone(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		done := f.events(t, subjects.RaiderDone)
		gone := f.client(t, transport)
		session, from := gone.session(""), gone.count()
		gone.prompt(session, "ask")
		gone.await(from, "the ask", isAsk)
		gone.close()
		done.wait(session)

		c := f.client(t, transport)
		if m := c.load(session, gone.cwd(session)); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		if got := text(c.received(0, -1), "agent_message_chunk"); !strings.Contains(got, "rejected") {
			t.Errorf("the raider says %q", got)
		}
	})
}

// Another client that loads the session sees the ask; its answer wins and the first
// client's request is taken back.
func TestPermissionAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		first := f.client(t, transport)
		session, from := first.session(""), first.count()
		id := first.prompt(session, "ask")
		ask, _ := first.await(from, "the ask", isAsk)

		second := f.client(t, transport)
		if m := second.load(session, first.cwd(session)); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		again, _ := second.await(0, "the ask at the second client", isAsk)
		for _, o := range decode[permission](again.Params).Options {
			if o.Kind == "allow_once" {
				second.respond(string(again.ID), "result", `{"outcome":{"outcome":"selected","optionId":`+quoted(o.ID)+`}}`)
			}
		}
		wantStop(t, first.answer(id), "end_turn")
		first.await(from, "the ask's withdrawal", func(m message) bool {
			return m.Method == "$/cancel_request" && strings.Contains(string(m.Params), string(ask.ID))
		})
		for _, c := range []*client{first, second} {
			c.await(0, "what the raider says", func(m message) bool {
				return strings.Contains(text([]message{m}, "agent_message_chunk"), "allowed once")
			})
		}
	})
}

// wait blocks until the session has an event.
func (e *events) wait(session string) {
	e.tb.Helper()
	natstest.Eventually(e.tb, patience, "an event of session "+session, func() (bool, any) {
		return len(e.of(session)) > 0, "none"
	})
}

// A raider's policy decides before any client is asked, and what 'allow always' made a rule
// of is not asked again in that session.
func TestPolicyAnswers(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(s *settings) {
		for i, c := range []policy.Config{{Allow: []string{"execute(true)"}}, {Deny: []string{"execute"}}} {
			p, err := policy.Compile(c)
			if err != nil {
				t.Fatal(err)
			}
			s.worker.Raiders[i].Policy = p
		}
	}, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		from := c.count()
		for raider, want := range map[string]string{"demo": "allowed", "other": "rejected"} {
			m, seen := c.turn(c.session(raider), "ask")
			wantStop(t, m, "end_turn")
			if got := text(seen, "agent_message_chunk"); !strings.Contains(got, want) {
				t.Errorf("%s: the raider says %q, want it to have been %s", raider, got, want)
			}
		}
		for _, m := range c.received(from, -1) {
			if isAsk(m) {
				t.Errorf("the client was asked: %s", m.Params)
			}
		}
	})
}

func TestAllowAlwaysIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		from := c.count()
		id := c.prompt(session, "ask")
		ask, _ := c.await(from, "the ask", isAsk)
		c.respond(string(ask.ID), "result", `{"outcome":{"outcome":"selected","optionId":"allow_always"}}`)
		wantStop(t, c.answer(id), "end_turn")
		from = c.count()
		m, seen := c.turn(session, "ask")
		wantStop(t, m, "end_turn")
		for _, m := range c.received(from, -1) {
			if isAsk(m) {
				t.Errorf("asked again: %s", m.Params)
			}
		}
		if got := text(seen, "agent_message_chunk"); !strings.Contains(got, "allowed") {
			t.Errorf("the raider says %q", got)
		}
	})
}
