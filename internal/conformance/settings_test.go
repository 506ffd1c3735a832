package conformance

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/demo"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// chosen is what an answer says of modes and options.
type chosen struct {
	ID    string `json:"sessionId"`
	Modes *struct {
		Current string `json:"currentModeId"`
	} `json:"modes"`
	Options []struct {
		ID    string `json:"id"`
		Value any    `json:"currentValue"`
	} `json:"configOptions"`
}

// String is "mode option=value …", in the order of the answer.
func (c chosen) String() string {
	var words []string
	if c.Modes != nil {
		words = append(words, c.Modes.Current)
	}
	for _, o := range c.Options {
		value, _ := json.Marshal(o.Value)
		words = append(words, o.ID+"="+strings.Trim(string(value), `"`))
	}
	return strings.Join(words, " ")
}

func chosenIn(tb testing.TB, m message) string {
	tb.Helper()
	if m.Error != nil {
		tb.Fatal(string(m.Error))
	}
	return decode[chosen](m.Result).String()
}

// create is session/new with its whole answer.
func (c *client) create(raider, dir string) message {
	c.tb.Helper()
	m := c.call("session/new", `{"cwd":`+quoted(dir)+`,"mcpServers":[],"_meta":{"raiderfleet/raider":`+quoted(raider)+`}}`)
	if m.Error != nil {
		c.tb.Fatal(string(m.Error))
	}
	return m
}

func (c *client) setMode(session, mode string) message {
	c.tb.Helper()
	return c.call("session/set_mode", `{"sessionId":`+quoted(session)+`,"modeId":`+quoted(mode)+`}`)
}

// setOption sets an option to a raw value.
func (c *client) setOption(session, option, value string) message {
	c.tb.Helper()
	kind := ""
	if value == "true" || value == "false" {
		kind = `"type":"boolean",`
	}
	return c.call("session/set_config_option", `{"sessionId":`+quoted(session)+`,`+kind+`"configId":`+quoted(option)+`,"value":`+value+`}`)
}

// settings is what the raider says is chosen.
func (c *client) settings(session string) string {
	c.tb.Helper()
	m, seen := c.turn(session, "settings")
	wantStop(c.tb, m, "end_turn")
	return text(seen, "agent_message_chunk")
}

// updatesOf are the raw updates of a kind.
func updatesOf(messages []message, kind string) []string {
	var out []string
	for _, m := range messages {
		if m.Method != "session/update" {
			continue
		}
		if u := decode[struct {
			Update json.RawMessage `json:"update"`
		}](m.Params).Update; strings.Contains(string(u), `"sessionUpdate":"`+kind+`"`) {
			out = append(out, string(u))
		}
	}
	return out
}

// lazy takes the eager start from raider `other`.
func lazy(s *settings) {
	s.doors = 2
	s.frontDoor.Raiders[1].Eager = false
}

// A new session's answer has the agent's own modes and options, whose process is there by
// then; what a client chooses the agent has, other clients see it, and a second front door
// answers with it.
func TestModesAndOptions(t *testing.T) {
	t.Parallel()
	onEach(t, lazy, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		dir := t.TempDir()
		made := c.create("demo", dir)
		modes, options := demo.Settings()
		for _, want := range []string{string(modes), string(options)} {
			if !strings.Contains(string(made.Result), want) {
				t.Errorf("session/new answers %s without %s", made.Result, want)
			}
		}
		session := decode[chosen](made.Result).ID
		warm := f.warmed(t, session)
		if warm.State != "warm" || warm.Prompt != "" || warm.PID == 0 {
			t.Errorf("its raider: %+v", warm)
		}

		second := newClient(t, f.dial(t, transport, 1))
		second.initialize()
		if got := chosenIn(t, second.comeBack("session/load", session, dir)); got != "work model=small" {
			t.Errorf("session/load answers %s", got)
		}
		from, mine := second.count(), c.count()
		if m := c.setMode(session, "plan"); string(m.Result) != "{}" {
			t.Errorf("session/set_mode: %s %s", m.Result, m.Error)
		}
		if got := chosenIn(t, c.setOption(session, "model", `"large"`)); got != "model=large effort=low" {
			t.Errorf("session/set_config_option answers %s", got)
		}
		second.await(from, "the other client's mode", func(m message) bool {
			return slices.Contains(updatesOf([]message{m}, "current_mode_update"), `{"sessionUpdate":"current_mode_update","currentModeId":"plan"}`)
		})
		second.await(from, "the other client's model", func(m message) bool {
			u := updatesOf([]message{m}, "config_option_update")
			return len(u) == 1 && strings.Contains(u[0], `"currentValue":"large"`)
		})
		if got := c.settings(session); got != "mode=plan model=large effort=low" {
			t.Errorf("the agent has %q", got)
		}
		if got := slices.Concat(updatesOf(c.received(mine, -1), "current_mode_update"), updatesOf(c.received(mine, -1), "config_option_update")); len(got) != 0 {
			t.Errorf("who chose was told %q beside the answer", got)
		}
		for _, method := range []string{"session/load", "session/resume"} {
			if got := chosenIn(t, second.comeBack(method, session, dir)); got != "plan model=large effort=low" {
				t.Errorf("%s answers %s", method, got)
			}
		}
	})
}

// warmed waits until a worker has the session's raider warm.
func (f *fleet) warmed(tb testing.TB, session string) subjects.LaneStatus {
	tb.Helper()
	var found subjects.LaneStatus
	natstest.Eventually(tb, patience, "the session's raider is warm", func() (bool, any) {
		nodes, err := f.bus.List(tb.Context(), f.bus.Fleet().NodesBucket(), ">")
		if err != nil {
			return false, err
		}
		for _, r := range nodes {
			var n subjects.Node
			if json.Unmarshal(r.Value, &n) != nil || n.Role != subjects.RoleWorker {
				continue
			}
			m, err := f.bus.Conn().Request(f.bus.Fleet().Worker(n.Instance), []byte(`{"op":"lanes"}`), 5*time.Second)
			if err != nil {
				return false, err
			}
			for _, l := range decode[subjects.WorkerReply](m.Data).Lanes {
				if string(l.Session) == session {
					found = l
				}
			}
		}
		return found.State == "warm", found
	})
	return found
}

// What the raider does not know it refuses itself, with its own code and data.
func TestUnknownModeAndOption(t *testing.T) {
	t.Parallel()
	onEach(t, lazy, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("demo")
		for _, x := range []struct {
			m    message
			text string
			data string
		}{
			{c.setMode(session, "party"), "unknown mode", `{"modeId":"party"}`},
			{c.setOption(session, "colour", `"red"`), "unknown option", `{"configId":"colour","value":"red"}`},
			{c.setOption(session, "model", `"huge"`), "unknown value", `{"configId":"model","value":"huge"}`},
		} {
			got := wantFault(t, x.m, -32000, x.text)
			data := decode[struct {
				Code int             `json:"code"`
				Data json.RawMessage `json:"data"`
			}](got.Data)
			if data.Code != -32602 || string(data.Data) != x.data {
				t.Errorf("%s: data %s", x.text, got.Data)
			}
		}
		none := `{"sessionId":` + quoted(string(subjects.NewSession())) + `,"modeId":"work"}`
		wantFault(t, c.call("session/set_mode", none), -32002, "session not found")
		for method, params := range map[string]string{
			"session/set_mode":          `{"sessionId":` + quoted(session) + `}`,
			"session/set_config_option": `{"sessionId":` + quoted(session) + `,"configId":"model","value":true}`,
		} {
			wantFault(t, c.call(method, params), -32602, "must be a string")
		}
		if got := c.settings(session); got != "mode=work model=small" {
			t.Errorf("the agent has %q", got)
		}
	})
}

// Without a process what is chosen waits in the session's record: it is answered, told to
// others, and the agent has it when it starts.
func TestModesAndOptionsWithoutAProcess(t *testing.T) {
	t.Parallel()
	seen := false
	onEach(t, lazy, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		dir := t.TempDir()
		if !seen {
			seen = true
			// Nobody has ever seen the raider's: nothing is offered, nothing can be chosen.
			m := c.create("other", dir)
			if got := chosenIn(t, m); got != "" {
				t.Errorf("session/new answers %s", got)
			}
			first := decode[chosen](m.Result).ID
			wantFault(t, c.setMode(first, "plan"), -32602, "no modes that are known yet")
			from := c.count()
			if got := c.settings(first); got != "mode=work model=small" {
				t.Errorf("the agent has %q", got)
			}
			// What the client was not told at first follows; of modes no update can tell.
			if got := updatesOf(c.received(from, -1), "config_option_update"); len(got) != 1 || !strings.Contains(got[0], `"id":"model"`) {
				t.Errorf("told %q", got)
			}
		}
		// Now an earlier session's are known.
		var made message
		natstest.Eventually(t, patience, "the raider's modes", func() (bool, any) {
			made = c.create("other", dir)
			got := chosenIn(t, made)
			return got == "work model=small", got
		})
		session := decode[chosen](made.Result).ID
		second := newClient(t, f.dial(t, transport, 1))
		second.initialize()
		if got := chosenIn(t, second.comeBack("session/resume", session, dir)); got != "work model=small" {
			t.Errorf("session/resume answers %s", got)
		}
		from := second.count()
		wantFault(t, c.setMode(session, "party"), -32602, `no mode "party"`)
		wantFault(t, c.setOption(session, "model", `"huge"`), -32602, "no such value")
		if m := c.setMode(session, "plan"); string(m.Result) != "{}" {
			t.Errorf("session/set_mode: %s %s", m.Result, m.Error)
		}
		if got := chosenIn(t, c.setOption(session, "model", `"large"`)); got != "model=large" {
			t.Errorf("session/set_config_option answers %s", got)
		}
		second.await(from, "the other client's mode", func(m message) bool {
			return len(updatesOf([]message{m}, "current_mode_update")) == 1
		})
		if got := chosenIn(t, second.comeBack("session/load", session, dir)); got != "plan model=large" {
			t.Errorf("session/load answers %s", got)
		}
		from = c.count()
		if got := c.settings(session); got != "mode=plan model=large effort=low" {
			t.Errorf("the agent has %q", got)
		}
		// The large model brought another option, of which no client had heard.
		if got := updatesOf(c.received(from, -1), "config_option_update"); len(got) != 1 || !strings.Contains(got[0], `"id":"effort"`) {
			t.Errorf("told %q", got)
		}
	})
}

// A mode and a model that were chosen are there after the raider's process, which is killed,
// its session, which is closed, and its first front door.
func TestChoicesSurvive(t *testing.T) {
	t.Parallel()
	onEach(t, lazy, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("demo")
		dir := c.cwd(session)
		if m := c.setMode(session, "plan"); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		chosenIn(t, c.setOption(session, "model", `"large"`))
		if m, _ := c.turn(session, "exit 7"); m.Error == nil {
			t.Fatal("its process did not end")
		}
		if got := chosenIn(t, c.setOption(session, "effort", `"high"`)); got != "model=large effort=high" {
			t.Errorf("session/set_config_option answers %s", got)
		}
		if m := c.call("session/close", `{"sessionId":`+quoted(session)+`}`); m.Error != nil {
			t.Fatal(string(m.Error))
		}
		wantFault(t, c.setMode(session, "work"), -32002, "the session is closed")
		c.close()
		second := newClient(t, f.dial(t, transport, 1))
		second.initialize()
		if got := chosenIn(t, second.comeBack("session/load", session, dir)); got != "plan model=large effort=high" {
			t.Errorf("session/load answers %s", got)
		}
		if got := second.settings(session); got != "mode=plan model=large effort=high" {
			t.Errorf("the agent has %q", got)
		}
	})
}

// Who comes late gets the session's commands, as the agent wrote them, behind the answer.
func TestLateClientsGetTheCommands(t *testing.T) {
	t.Parallel()
	onEach(t, lazy, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("demo")
		const commands = `{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"dance","description":"d","_meta":{"n":1.0,"big":9007199254740993}}]}`
		m, _ := c.turn(session, "update "+commands)
		wantStop(t, m, "end_turn")
		for _, method := range []string{"session/load", "session/resume"} {
			late := newClient(t, f.dial(t, transport, 1))
			late.initialize()
			id := late.start(method, `{"sessionId":`+quoted(session)+`,"cwd":`+quoted(c.cwd(session))+`,"mcpServers":[]}`)
			_, at := late.nthAnswer(id, 0)
			late.await(at, "the commands after "+method, func(m message) bool {
				return slices.Contains(updatesOf([]message{m}, "available_commands_update"), commands)
			})
		}
	})
}

// An option that is on or off is offered to a client that knows such, and set as one.
func TestBooleanOption(t *testing.T) {
	t.Parallel()
	onEach(t, lazy, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := newClient(t, f.dial(t, transport, 0))
		c.mu.Lock() // an older schema knows no such options
		c.schemas = slices.DeleteFunc(slices.Clone(c.schemas), func(s *protocolSchema) bool { return !s.booleans })
		c.mu.Unlock()
		c.call("initialize", `{"protocolVersion":1,"clientCapabilities":{"session":{"configOptions":{"boolean":{}}}}}`)
		made := c.create("demo", t.TempDir())
		if got := chosenIn(t, made); got != "work model=small verbose=false" {
			t.Errorf("session/new answers %s", got)
		}
		session := decode[chosen](made.Result).ID
		if got := chosenIn(t, c.setOption(session, "verbose", "true")); got != "model=small verbose=true" {
			t.Errorf("session/set_config_option answers %s", got)
		}
		if got := c.settings(session); got != "mode=work model=small verbose" {
			t.Errorf("the agent has %q", got)
		}
	})
}

// With no place free a new session is answered all the same, with what is known of the
// raider; nothing of it stays in the backlog, and its prompt comes in its turn.
func TestNewSessionWithNoPlaceFree(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *settings) { s.worker.Capacity = 1 }, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		busy := c.session("demo")
		from := c.count()
		running := c.prompt(busy, "sleep 600")
		c.await(from, "a chunk of sleep", func(m message) bool { return chunkOf(m, busy) })
		made := c.create("demo", t.TempDir())
		if got := chosenIn(t, made); got != "work model=small" {
			t.Errorf("session/new answers %s", got)
		}
		counts, err := f.bus.Counts(t.Context(), f.bus.Fleet().BacklogStream(), f.bus.Fleet().BacklogAll())
		if err != nil || len(counts) != 1 {
			t.Errorf("the backlog has %v, %v", counts, err)
		}
		session := decode[chosen](made.Result).ID
		waiting := c.prompt(session, "settings")
		c.notify("session/cancel", `{"sessionId":`+quoted(busy)+`}`)
		wantStop(t, c.answer(running), "cancelled")
		wantStop(t, c.answer(waiting), "end_turn")
	})
}
