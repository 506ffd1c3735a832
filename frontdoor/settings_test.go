package frontdoor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// asked answers the lane's control requests with the replies, one after the other, and hands
// them on; nil is no answer.
func (o *owner) asked(lane subjects.LaneID, replies ...*subjects.ControlReply) <-chan subjects.ControlRequest {
	o.t.Helper()
	out := make(chan subjects.ControlRequest, 100)
	sub, err := o.b.Conn().Subscribe(o.f.Control(lane), func(m *nats.Msg) {
		var req subjects.ControlRequest
		if err := json.Unmarshal(m.Data, &req); err != nil {
			o.t.Errorf("control request: %v", err)
		}
		if len(replies) == 0 {
			o.t.Errorf("one more request: %s", m.Data)
			return
		}
		if replies[0] != nil {
			_ = m.Respond(object(replies[0]))
		}
		replies = replies[1:]
		out <- req
	})
	o.must(err)
	o.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return out
}

func mode(s subjects.SessionID, id string) string {
	return fmt.Sprintf(`{"sessionId":%q,"modeId":%q,"_meta":{"n":1.0}}`, s, id)
}

// An owner that does not answer is asked again, under the same name: it sets a mode once.
func TestASetIsRepeatedUnderItsName(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	asked := o.asked(subjects.SessionLane(s), nil, &subjects.ControlReply{Error: "not yet"}, &subjects.ControlReply{Result: json.RawMessage(`{"_meta":{"x":1.0}}`)})
	if got := string(c.call(subjects.MethodSetMode, mode(s, "plan"))); got != `{"_meta":{"x":1.0}}` {
		t.Errorf("answered %s", got)
	}
	first := next(t, asked)
	if first.Op != subjects.ControlSet || first.Session != s || first.Principal != subjects.LocalPrincipal || string(first.Params) != mode(s, "plan") || first.By == "" || first.Wish != 0 {
		t.Errorf("asked %+v", first)
	}
	for range 2 {
		if again := next(t, asked); again.Call != first.Call || again.Call == "" {
			t.Errorf("asked again as %q, first as %q", again.Call, first.Call)
		}
	}
}

// A process that was just starting when the wish was written is asked as well. What it
// refuses is no wish.
func TestAWishThatFindsAProcess(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	o.notes(s, opened())
	none := &subjects.ControlReply{Decided: true}
	asked := o.asked(subjects.SessionLane(s),
		none, &subjects.ControlReply{Fault: &subjects.RunError{Message: "no", Code: 7, Data: json.RawMessage(`[1.0]`)}},
		none, &subjects.ControlReply{Result: json.RawMessage(`{}`)},
		none, none)
	_, err := c.try(subjects.MethodSetMode, mode(s, "plan"))
	if err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("answered %v", err)
	}
	if one, two := next(t, asked), next(t, asked); one.Wish != 0 || two.Wish != 1 {
		t.Errorf("asked for wish %d, then %d", one.Wish, two.Wish)
	}
	if m := o.meta(s); len(m.Wishes) != 0 || m.Wished != 1 {
		t.Errorf("what was refused is wished: %+v", m)
	}
	c.call(subjects.MethodSetMode, mode(s, "plan"))
	c.call(subjects.MethodSetMode, mode(s, "work"))
	m := o.meta(s)
	if len(m.Wishes) != 1 || m.Wishes[0].N != 3 || string(m.Wishes[0].Params) != mode(s, "work") {
		t.Errorf("wishes %+v", m.Wishes)
	}
}

// Another client is told of a choice whoever made it, and in whatever process; who made it,
// and who was told the same at first, is not.
func TestSettingsAreToldToOthers(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c, other := connect(t, f, ConnOptions{}), connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	o.notes(s, opened())
	load := fmt.Sprintf(`{"sessionId":%q,"cwd":"/w","mcpServers":[]}`, s)
	for _, who := range []*client{c, other} {
		if got := string(who.call("session/resume", load)); !strings.Contains(got, workModes) || !strings.Contains(got, smallModel) {
			t.Errorf("session/resume answers %s", got)
		}
	}
	o.between(s, subjects.EventSettings, `{"first":true,"modes":`+workModes+`,"config_options":`+smallModel+`}`)
	c.call(subjects.MethodSetMode, mode(s, "plan"))
	got := string(c.call(subjects.MethodSetOption, fmt.Sprintf(`{"sessionId":%q,"configId":"model","value":"large"}`, s)))
	if !strings.Contains(got, largeModel) {
		t.Errorf("session/set_config_option answers %s", got)
	}
	o.between(s, subjects.EventUpdate, fmt.Sprintf(`{"sessionId":%q,"update":%s}`, s, someCommand))
	c.await("available_commands_update")
	other.await("available_commands_update")
	c.want("available_commands_update ")
	other.want("current_mode_update ", "config_option_update ", "available_commands_update ")
}
