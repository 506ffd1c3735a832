package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/admin"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// village is the example's hall on two machines: two workers with a state of their own each,
// all of whose processes read one .raider-hall.yml.
type village struct {
	*fleet
	config  string
	workers map[string]*process // by name
}

// startVillage starts a fleet of a hall's file, which the test may change. The variables of
// the environment programs name its raider.
func startVillage(t *testing.T, programs ...string) *village {
	t.Helper()
	hall := exampleDir(t, "hall")
	v := &village{fleet: &fleet{home: newHome(t, "RAIDERFLEET_ACK_WAIT=2s", "RAIDERFLEET_NATS_USER=u", "RAIDERFLEET_NATS_PASSWORD=secret",
		"RAIDERFLEET_RAIDER_BIN=", "RAIDER_HALL_RAIDER_BIN=/no/such/raider")}, workers: map[string]*process{}}
	for _, name := range programs {
		v.env = append(v.env, name+"="+filepath.Join(hall, "raider"))
	}
	v.installProgram()
	text, err := os.ReadFile(filepath.Join(hall, ".raider-hall.yml"))
	if err != nil {
		t.Fatal(err)
	}
	v.config = filepath.Join(v.dir, ".raider-hall.yml") // where all commands look
	v.configure(string(text))
	nats, ready := v.serve("nats", "--listen", "127.0.0.1:0", "--store", filepath.Join(v.dir, "nats"))
	v.nats, v.natsURL = nats, ready.NATS
	v.env = append(v.env, "RAIDERFLEET_NATS_URLS="+v.natsURL)
	v.startDoor()
	for _, name := range []string{"w1", "w2"} {
		v.work(name)
	}
	return v
}

// installProgram puts the program in the path under its name: raiders start it.
func (h *home) installProgram() {
	h.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	bin := h.t.TempDir()
	if err := os.Symlink(exe, filepath.Join(bin, "raiderfleet")); err != nil {
		h.t.Fatal(err)
	}
	h.env = append(h.env, "PATH="+bin+":"+os.Getenv("PATH"))
}

func (v *village) configure(text string) {
	v.t.Helper()
	if err := os.WriteFile(v.config, []byte(text), 0o600); err != nil {
		v.t.Fatal(err)
	}
}

// work starts a worker as on a machine of its own.
func (v *village) work(name string) {
	v.t.Helper()
	v.workers[name], _ = v.serve("worker", "--name", name, "--state-dir", filepath.Join(v.dir, "state-"+name))
}

// hallClient speaks as the hall's own client does, and nothing beyond it.
type hallClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	id   int
}

// dial connects to the front door's port and shakes hands.
func (v *village) dial() *hallClient {
	v.t.Helper()
	conn, err := net.Dial("tcp", v.acp)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		v.t.Fatal(err)
	}
	c := &hallClient{t: v.t, conn: conn, in: bufio.NewReader(conn)}
	c.call("initialize", "{}")
	return c
}

func (c *hallClient) send(method, params string) int {
	c.t.Helper()
	c.id++
	if _, err := fmt.Fprintf(c.conn, `{"id":%d,"jsonrpc":"2.0","method":%q,"params":%s}`+"\n", c.id, method, params); err != nil {
		c.t.Fatal(err)
	}
	return c.id
}

// hallAnswer is how a request ended, and what was said before.
type hallAnswer struct {
	Result struct {
		Session    string `json:"sessionId"`
		StopReason string `json:"stopReason"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	said string
}

// answer reads until a frame has the id, as the hall's client does.
func (c *hallClient) answer(id int) hallAnswer {
	c.t.Helper()
	var said strings.Builder
	for {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("answer %d: %v", id, err)
		}
		var m struct {
			ID     *int `json:"id"`
			Params struct {
				Update struct {
					Kind    string          `json:"sessionUpdate"`
					Content json.RawMessage `json:"content"`
				} `json:"update"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			continue // a question of the raider has an id of another kind
		}
		if m.ID != nil && *m.ID == id {
			a := hallAnswer{said: said.String()}
			if err := json.Unmarshal(line, &a); err != nil {
				c.t.Fatalf("%v: %s", err, line)
			}
			return a
		}
		var content struct {
			Text string `json:"text"`
		}
		if m.Params.Update.Kind == "agent_message_chunk" && json.Unmarshal(m.Params.Update.Content, &content) == nil {
			said.WriteString(content.Text)
		}
	}
}

func (c *hallClient) call(method, params string) hallAnswer {
	c.t.Helper()
	a := c.answer(c.send(method, params))
	if a.Error != nil {
		c.t.Fatalf("%s: %+v", method, *a.Error)
	}
	return a
}

// open makes a session; raider may be "".
func (c *hallClient) open(cwd, raider string) string {
	c.t.Helper()
	params := fmt.Sprintf(`{"cwd":%q}`, cwd)
	if raider != "" {
		params = fmt.Sprintf(`{"cwd":%q,"raiderName":%q}`, cwd, raider)
	}
	return c.call("session/new", params).Result.Session
}

func (c *hallClient) prompt(session, text string) hallAnswer {
	c.t.Helper()
	return c.answer(c.send("session/prompt", promptParams(session, text)))
}

// completed checks an answer.
func (a hallAnswer) completed(t *testing.T, said string) {
	t.Helper()
	if a.Error != nil || a.Result.StopReason != "end_turn" || a.said != said {
		t.Errorf("said %q and answered %+v, %+v; want %q", a.said, a.Result, a.Error, said)
	}
}

// failed checks an answer.
func (a hallAnswer) failed(t *testing.T, text string) {
	t.Helper()
	if a.Error == nil || a.Error.Code != -32000 || !strings.Contains(a.Error.Message, text) || a.said != "" {
		t.Errorf("said %q and answered %+v, %+v; want -32000 with %q", a.said, a.Result, a.Error, text)
	}
}

// queued waits until the slot's queue has so many prompts, the one that runs included, and
// returns them.
func (v *village) queued(lane string, n int) []admin.Waiting {
	v.t.Helper()
	var found []admin.Waiting
	natstest.Eventually(v.t, patience, fmt.Sprintf("%d prompts in %s, one of which runs", n, lane), func() (bool, any) {
		found = nil
		for _, q := range decode[[]admin.Waiting](v.t, v.run("queue", "--json")) {
			if string(q.Lane) == lane {
				found = append(found, q)
			}
		}
		return len(found) == n && (n == 0 || found[0].Why == "runs"), found
	})
	return found
}

// called are the arguments of a session's runs, from the stand-in's words in the log.
func (v *village) called(session string, runs int) []string {
	v.t.Helper()
	var lines []string
	natstest.Eventually(v.t, patience, "the log of the session", func() (bool, any) {
		lines = slices.DeleteFunc(strings.Split(v.run("logs", session).stdout.String(), "\n"), func(l string) bool {
			return !strings.HasPrefix(l, "raider ")
		})
		return len(lines) == runs, lines
	})
	return lines
}

// fleetEvents are those that `events --json` has told so far.
func fleetEvents(t *testing.T, p *process) []subjects.FleetEvent {
	t.Helper()
	var all []subjects.FleetEvent
	for line := range strings.Lines(p.stdout.String()) {
		var e subjects.FleetEvent
		if !strings.HasSuffix(line, "\n") {
			break // not whole yet
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		all = append(all, e)
	}
	return all
}

// The hall's file means what it meant, and what it doesn't any more is named once.
func TestHallExampleConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(exampleDir(t, "hall"), ".raider-hall.yml")
	h := newHome(t)
	h.env = slices.DeleteFunc(h.env, func(v string) bool { return strings.HasPrefix(v, "RAIDERFLEET_FRONTDOOR_LISTEN=") })
	check := h.run("config", "check", "--config", file)
	text := check.stdout.String()
	for _, want := range []string{"127.0.0.1:38421", "without meaning here: longhouse (line 3), raiders.bjorn.mcp (line 12), cron (line 32), mcp (line 40)"} {
		if check.code != 0 || strings.Count(text, want) != 1 {
			t.Errorf("%q is not there once:\n%s%s", want, text, check.stderr)
		}
	}
	converted := h.run("config", "convert", file)
	fleet := filepath.Join(h.dir, "fleet.yml")
	if err := os.WriteFile(fleet, []byte(converted.stdout.String()), 0o600); err != nil || converted.code != 0 {
		t.Fatalf("convert ended with %d, %v; stderr:\n%s", converted.code, err, converted.stderr)
	}
	again := h.run("config", "check")
	if again.code != 0 || strings.Contains(again.stdout.String(), "without meaning") {
		t.Errorf("what convert has made: %d\n%s%s", again.code, again.stdout, again.stderr)
	}
	// The same values, from other places.
	if a, b := configured(text), configured(again.stdout.String()); !slices.Equal(a, b) {
		t.Errorf("the hall's file means\n%s\nand what convert made of it\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

// configured are the keys and values of a description.
func configured(description string) []string {
	var out []string
	for line := range strings.Lines(description) {
		words := strings.Fields(line)
		if len(words) > 2 && strings.Contains(line, "  ") && !strings.HasPrefix(line, "file:") {
			out = append(out, words[0]+" "+strings.Join(words[2:], " ")) // but for the place
		}
	}
	return out
}

// A hall's client, its raiders and their sessions, over two workers.
func TestHallExample(t *testing.T) {
	t.Parallel()
	v := startVillage(t, "RAIDERFLEET_RAIDER_BIN")
	events := v.listen("--json")
	c := v.dial()

	first := c.open(v.dir, "")
	c.prompt(first, "echo hello hall").completed(t, "hello hall")
	c.prompt(first, "history").completed(t, "echo hello hall")
	calls := v.called(first, 2)
	const bjorn = "raider --stream-json --engine openai --model gpt-4o-mini --pack git-guru --pack perl-hacker --pack caveman"
	if want := bjorn + " --root " + v.dir; calls[0] != want {
		t.Errorf("the first run was called with %q, want %q", calls[0], want)
	}
	if inner, root, ok := strings.Cut(strings.TrimPrefix(calls[1], bjorn+" --session demo-"), " --root "); !ok || len(inner) < 10 || root != v.dir {
		t.Errorf("the second run was called with %q", calls[1])
	}
	// A client on another machine: its directory is not here, and a hall never looks at it.
	afar := c.open("/no/such/directory", "")
	c.prompt(afar, "cwd").completed(t, v.dir)
	if got := v.called(afar, 1)[0]; got != bjorn+" --root "+v.dir {
		t.Errorf("for a client elsewhere it was called with %q", got)
	}
	second := c.open(v.dir, "lagertha")
	c.prompt(second, "echo polite").completed(t, "polite")
	if got := v.called(second, 1)[0]; !strings.HasSuffix(got, "--pack testing-fu --pack polite --root "+v.dir) {
		t.Errorf("a persona that is a pack is there twice: %q", got)
	}
	c.prompt(first, "fail no mead left").failed(t, "no mead left")
	c.prompt(first, "exit 4").failed(t, "held by another writer (exit code 4)")

	id := c.send("session/prompt", promptParams(first, "sleep 1000"))
	v.queued("sess-"+first, 1)
	cancel := c.send("session/cancel", fmt.Sprintf(`{"sessionId":%q}`, first))
	// The hall's client reads whichever comes first; both do.
	byID := map[int]hallAnswer{}
	for len(byID) < 2 {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			ID *int `json:"id"`
		}
		var a hallAnswer
		if json.Unmarshal(line, &m) == nil && m.ID != nil && json.Unmarshal(line, &a) == nil {
			byID[*m.ID] = a
		}
	}
	if a := byID[id]; a.Error != nil || a.Result.StopReason != "cancelled" {
		t.Errorf("a cancelled prompt is answered %+v", a)
	}
	if a := byID[cancel]; a.Error != nil {
		t.Errorf("session/cancel is answered %+v", a)
	}
	c.prompt(first, "echo on").completed(t, "on")

	// The servers name what they don't use; commands of scripts don't repeat it.
	for _, server := range []*process{v.door, v.workers["w1"], v.workers["w2"]} {
		if got := server.stderr.String(); strings.Count(got, "without meaning here: longhouse") != 1 {
			t.Errorf("%q should warn once:\n%s", server.args, got)
		}
	}
	v.run("queue", "--json").want(0, "[]\n")

	// Scripts see it all.
	outcomes := map[subjects.RunState]int{}
	natstest.Eventually(t, patience, "8 prompts queued, spawned and done", func() (bool, any) {
		count := map[string]int{}
		clear(outcomes)
		for _, e := range fleetEvents(t, events) {
			count[string(e.Kind)]++
			if e.Kind == subjects.RaiderDone {
				outcomes[e.Outcome]++
			}
		}
		return count["raider.queued"] == 8 && count["raider.spawned"] == 8 && count["raider.done"] == 8 && count["session.bound"] >= 2, count
	})
	if outcomes[subjects.RunCompleted] != 5 || outcomes[subjects.RunFailed] != 2 || outcomes[subjects.RunCancelled] != 1 {
		t.Errorf("outcomes: %v", outcomes)
	}
}

// A slot is one in both workers: its prompts run one at a time, in their order, also when
// the worker that has it is killed. A client that goes takes its waiting prompts along.
func TestHallExampleSlot(t *testing.T) {
	t.Parallel()
	v := startVillage(t, "RAIDER_HALL_RAIDER_BIN") // as a hall has it
	events := v.listen("--json")
	const slot, lane = "1bjorn", "slot-1bjorn"
	clients := make([]*hallClient, 4)
	sent := make([]int, len(clients))
	for i, text := range []string{"sleep 1000", "echo gone", "echo second", "echo third"} {
		c := v.dial()
		clients[i], sent[i] = c, c.send("session/prompt", promptParams(c.open(v.dir, slot), text))
		v.queued(lane, i+1)
	}
	if err := clients[1].conn.Close(); err != nil { // on_disconnect: drop, as a hall does
		t.Fatal(err)
	}
	v.queued(lane, 3)
	var seat subjects.LaneStatus
	for _, l := range decode[[]subjects.LaneStatus](t, v.run("ps", "--json")) {
		if string(l.Lane) == lane {
			seat = l
		}
	}
	name, _, _ := strings.Cut(string(seat.Instance), "-")
	if v.workers[name] == nil {
		t.Fatalf("nobody has the seat: %+v", seat)
	}
	v.workers[name].kill()
	natstest.Eventually(t, patience, "the end of its raider", func() (bool, any) { return !alive(seat.PID), seat.PID })
	first := clients[0].answer(sent[0])
	if first.Error == nil || first.Error.Code != -32000 || !strings.Contains(first.Error.Message, string(seat.Instance)) {
		t.Errorf("the lost run is answered %+v, %+v", first.Result, first.Error)
	}
	clients[2].answer(sent[2]).completed(t, "second")
	clients[3].answer(sent[3]).completed(t, "third")
	v.queued(lane, 0)

	// One run at a time, and none of the prompt of the client that went.
	var told []string
	natstest.Eventually(t, patience, "the end of four prompts", func() (bool, any) {
		told = nil
		done := 0
		for _, e := range fleetEvents(t, events) {
			if string(e.Lane) != lane {
				continue
			}
			if e.Kind == subjects.RaiderSpawned {
				told = append(told, "spawned")
			}
			if e.Kind == subjects.RaiderDone {
				told = append(told, string(e.Outcome))
				done++
			}
		}
		return done == 4, told
	})
	if got, want := strings.Join(told, " "), "spawned cancelled failed spawned completed spawned completed"; got != want {
		t.Errorf("the slot's events: %s, want %s", got, want)
	}
}

// A prompt that waits for a raider which is taken from the configuration is refused when
// the fleet comes back without it, and nothing runs.
func TestHallExampleRaiderIsTakenAway(t *testing.T) {
	t.Parallel()
	v := startVillage(t, "RAIDERFLEET_RAIDER_BIN")
	running := decode[spawned](t, v.run("spawn", "--json", "--raider", "1freya", "sleep 1000"))
	v.queued("slot-1freya", 1)
	waiting := decode[spawned](t, v.run("spawn", "--json", "--raider", "1freya", "echo never"))
	v.queued("slot-1freya", 2)

	text, err := os.ReadFile(v.config)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(text), "  # Reports.")
	_, after, ok2 := strings.Cut(string(text), "cron:")
	if !ok || !ok2 {
		t.Fatalf("no freya in\n%s", text)
	}
	for _, p := range v.workers {
		p.kill()
	}
	v.door.kill()
	v.configure(before + "cron:" + after)
	events := v.listen("--json")
	v.startDoor()
	for name := range v.workers {
		v.work(name)
	}
	// Who comes back to the session and sends one more is refused at once.
	c := v.dial()
	c.call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, waiting.Session, v.dir))
	c.prompt(string(waiting.Session), "echo nor this").failed(t, "raider freya is not configured any more")
	v.run("wait", string(waiting.Prompt)).want(1, string(waiting.Prompt)+" refused\n", "no worker serves raider freya any more")
	if p := v.run("wait", string(running.Prompt)); p.code != 1 {
		t.Errorf("the run of the lost worker: %d, %s%s", p.code, p.stdout, p.stderr)
	}
	events.says(events.stdout, "raider.refused")
	for _, e := range fleetEvents(t, events) {
		if e.Kind == subjects.RaiderSpawned {
			t.Errorf("something ran: %+v", e)
		}
	}
	if p := v.run("logs", string(waiting.Prompt)); strings.Contains(p.stdout.String(), "raider ") {
		t.Errorf("a process was started:\n%s", p.stdout)
	}
	v.queued("slot-1freya", 0)
	// The others are there as before.
	c.prompt(c.open(v.dir, "bjorn"), "echo still here").completed(t, "still here")
}
