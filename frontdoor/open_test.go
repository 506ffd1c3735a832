package frontdoor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

const (
	workModes   = `{"currentModeId":"work","availableModes":[{"id":"work","name":"W","_meta":{"n":1.0}},{"id":"plan","name":"P"}]}`
	smallModel  = `[{"id":"model","name":"M","type":"select","currentValue":"small","options":[{"value":"small","name":"S"},{"value":"large","name":"L"}],"new":1e400}]`
	largeModel  = `[{"id":"model","name":"M","type":"select","currentValue":"large","options":[{"value":"small","name":"S"},{"value":"large","name":"L"}],"new":1e400}]`
	someCommand = `{"sessionUpdate":"available_commands_update","availableCommands":[]}`
)

// notes writes what a worker notes of a session's agent.
func (o *owner) notes(s subjects.SessionID, a subjects.SessionAgent) {
	o.t.Helper()
	_, err := o.b.SetJSON(o.t.Context(), o.f.SessionsBucket(), subjects.AgentKey(subjects.LocalPrincipal, s), a, 0)
	o.must(err)
}

// opened is a session's first note, in the mode work with the small model.
func opened() subjects.SessionAgent {
	return subjects.SessionAgent{InnerID: "i", Settings: subjects.Settings{Modes: json.RawMessage(workModes), Options: json.RawMessage(smallModel)}}
}

// between writes an event that is no prompt's.
func (o *owner) between(s subjects.SessionID, kind subjects.EventKind, body string) {
	o.t.Helper()
	o.n++
	h := subjects.EventHeader{Kind: kind, Epoch: o.epoch, N: o.n, Worker: o.id}
	_, err := o.b.Publish(o.t.Context(), natsMsg(o.f.Event(s), h, []byte(body)))
	o.must(err)
}

// opens tells that a raider has been opened.
func (r *running) opens() {
	r.o.t.Helper()
	r.o.must(r.o.b.DeleteMessage(r.o.t.Context(), r.o.f.BacklogStream(), r.seq))
	h := subjects.ClientHeader{Op: subjects.ClientOpened, Call: string(r.h.Prompt), Session: r.h.Session}
	r.o.must(r.o.b.Conn().PublishMsg(&nats.Msg{Subject: r.o.f.Client(r.h.Origin.FrontDoor, r.h.Origin.Attachment), Header: h.Header()}))
}

func eager(c *Config) { c.Raiders[0].Eager = true }

// asking is a request of which the answer is waited for elsewhere.
func (c *client) asking(method, params string) <-chan string {
	answers := make(chan string, 1)
	go func() {
		result, err := c.try(method, params)
		if err != nil {
			answers <- err.Error()
			return
		}
		answers <- string(result)
	}()
	return answers
}

// session/new waits for the raider to be opened, answers with its settings, and shows what
// came before the answer only behind it.
func TestNewSessionOpensItsRaider(t *testing.T) {
	t.Parallel()
	f, o := setup(t, eager)
	f.openFor = time.Minute
	c := connect(t, f, ConnOptions{})
	answer := c.asking("session/new", `{"cwd":"/w","mcpServers":[],"raiderName":"bjorn"}`)
	open := o.see("bjorn", 1)
	if open.h.Kind != subjects.KindOpen || open.h.Origin.Attachment == "" || len(open.body) != 0 {
		t.Fatalf("asked for %+v", open.h)
	}
	if _, err := o.b.Next(t.Context(), o.f.ReadyStream(), o.f.ReadyAll(), 1); err != nil {
		eventually(t, func() string {
			_, err := o.b.Next(t.Context(), o.f.ReadyStream(), o.f.ReadyAll(), 1)
			if err != nil {
				return "no baton"
			}
			return ""
		})
	}
	o.notes(open.h.Session, opened())
	o.between(open.h.Session, subjects.EventUpdate, fmt.Sprintf(`{"sessionId":%q,"update":%s}`, open.h.Session, someCommand))
	o.between(open.h.Session, subjects.EventSettings, `{"first":true,"modes":`+workModes+`,"config_options":`+smallModel+`}`)
	select {
	case got := <-answer:
		t.Fatalf("answered %s before it was opened", got)
	default:
	}
	if got := c.received(); strings.Contains(got, "available_commands_update") {
		t.Fatalf("a session that the client does not know was shown: %s", got)
	}
	open.opens()
	got := next(t, answer)
	for _, want := range []string{string(open.h.Session), workModes, smallModel} {
		if !strings.Contains(got, want) {
			t.Errorf("answered %s without %s", got, want)
		}
	}
	c.await("available_commands_update")
	c.want("available_commands_update ") // and no more: it was told of the settings
}

// A raider that no worker opens is asked for in vain: the open is taken back, and the client
// is told what other sessions were offered. What is other in the end follows.
func TestAnOpenIsTakenBack(t *testing.T) {
	t.Parallel()
	f, o := setup(t, eager)
	f.openFor = 50 * time.Millisecond
	node := subjects.Node{Role: subjects.RoleWorker, Name: "w", Instance: o.id, State: subjects.NodeUp, Agents: map[subjects.Raider]subjects.Agent{
		"bjorn": {Capabilities: json.RawMessage(`{}`), Settings: opened().Settings},
	}}
	_, err := o.b.SetJSON(t.Context(), o.f.NodesBucket(), subjects.NodeKey(o.id), node, 0)
	o.must(err)
	c := connect(t, f, ConnOptions{})
	answer := next(t, c.asking("session/new", `{"cwd":"/w","mcpServers":[],"raiderName":"bjorn"}`))
	if !strings.Contains(answer, workModes) || !strings.Contains(answer, smallModel) {
		t.Errorf("answered %s", answer)
	}
	if n := o.backlog(); n != 0 {
		t.Errorf("%d messages are in the backlog", n)
	}
	s := sessionIn(t, answer)
	o.between(s, subjects.EventSettings, `{"first":true,"modes":`+workModes+`,"config_options":`+largeModel+`}`)
	c.await("config_option_update")
	c.want("config_option_update ") // the mode is as it was told
	// A seat's lane is others' too: nothing is opened ahead.
	c.call("session/new", `{"cwd":"/w","mcpServers":[],"raiderName":"1bjorn"}`)
	if last, err := o.b.LastSeq(t.Context(), o.f.BacklogStream()); err != nil || last != 1 {
		t.Errorf("the backlog has had %d messages, %v", last, err)
	}
}

func sessionIn(t *testing.T, answer string) subjects.SessionID {
	t.Helper()
	var r struct {
		Session subjects.SessionID `json:"sessionId"`
	}
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		t.Fatal(err)
	}
	return r.Session
}

// An open that is left in the backlog is nobody's prompt: it has no place, and no cancel and
// no close touches it.
func TestAnOpenIsNoPrompt(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	c := connect(t, f, ConnOptions{})
	s := c.session("bjorn")
	lane := subjects.SessionLane(s)
	h := subjects.PromptHeader{Prompt: subjects.NewPrompt(), Session: s, Principal: subjects.LocalPrincipal, Kind: subjects.KindOpen, Priority: "normal"}
	_, err := o.b.Publish(t.Context(), &nats.Msg{Subject: o.f.Backlog("bjorn", lane, subjects.LocalPrincipal), Header: h.Header()})
	o.must(err)
	c.prompt(s, "1", "one")
	first := o.take("bjorn", 2)
	c.prompt(s, "2", "two")
	second := o.see("bjorn", first.seq+1)
	c.await(fmt.Sprintf(`info {"raiderfleet/queue":{"prompt":%q,"place":1,"of":2}}`, second.h.Prompt))
	first.end(ok())
	c.await("end 1 ")
	c.cancelSession(s)
	c.await("end 2 ")
	eventually(t, func() string {
		if n := o.backlog(); n != 1 {
			return fmt.Sprintf("%d messages in the backlog", n)
		}
		return ""
	})
	c.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
	if records, err := o.b.List(t.Context(), o.f.RunsBucket(), string(h.Prompt)); err != nil || len(records) != 0 {
		t.Errorf("records of an open: %v, %v", records, err)
	}
}
