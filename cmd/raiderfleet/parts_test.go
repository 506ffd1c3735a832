package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"raiderfleet/internal/admin"
	"raiderfleet/subjects"
)

// alive says whether a process is there and not a zombie.
func alive(pid int) bool {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(body), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// fleet is a fleet of separate processes.
type fleet struct {
	*home
	nats, door, worker *process
	natsURL, acp       string
}

func startParts(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{home: newHome(t, "RAIDERFLEET_ACK_WAIT=2s", "RAIDERFLEET_NATS_USER=u", "RAIDERFLEET_NATS_PASSWORD=secret")}
	nats, ready := f.serve("nats", "--listen", "127.0.0.1:0", "--store", filepath.Join(f.dir, "nats"))
	f.nats, f.natsURL = nats, ready.NATS
	f.env = append(f.env, "RAIDERFLEET_NATS_URLS="+f.natsURL)
	f.startDoor()
	f.startWorker()
	return f
}

func (f *fleet) startDoor() {
	f.t.Helper()
	door, ready := f.serve("frontdoor")
	f.door, f.acp = door, ready.ACP
}

func (f *fleet) startWorker() {
	f.t.Helper()
	f.worker, _ = f.serve("worker")
}

func (f *fleet) startNATS() {
	f.t.Helper()
	u, err := url.Parse(f.natsURL)
	if err != nil {
		f.t.Fatal(err)
	}
	f.nats, _ = f.serve("nats", "--listen", net.JoinHostPort("127.0.0.1", u.Port()), "--store", filepath.Join(f.dir, "nats"))
}

// occupy starts a prompt in slot 1demo that runs until it is cancelled, waits until it
// does, and returns its session too.
func (f *fleet) occupy() (*process, string) {
	f.t.Helper()
	p := f.start("prompt", "--connect", f.acp, "--raider", "1demo", "--json", "sleep 1000")
	line, _, _ := strings.Cut(p.says(p.stdout, "agent_message_chunk"), "\n")
	var update struct {
		Session string `json:"sessionId"`
	}
	if err := json.Unmarshal([]byte(line), &update); err != nil {
		f.t.Fatalf("%v: %q", err, line)
	}
	return p, update.Session
}

// waiting starts a prompt in slot 1demo and waits until it has been accepted.
func (f *fleet) waiting(text string) *process {
	f.t.Helper()
	before := len(decode[[]admin.Waiting](f.t, f.run("queue", "--json")))
	p := f.start("prompt", "--connect", f.acp, "--raider", "1demo", text)
	p.poll("its place in the queue", func() bool {
		return len(decode[[]admin.Waiting](f.t, f.run("queue", "--json"))) > before
	})
	return p
}

func (f *fleet) emptyQueue() {
	f.t.Helper()
	poll(f.t, "an empty queue", func() bool {
		return len(decode[[]admin.Waiting](f.t, f.run("queue", "--json"))) == 0
	})
}

func TestPartsAsProcesses(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	f.run("prompt", "--connect", f.acp, "echo by TCP").want(0, "by TCP\n")
	f.run("prompt", "echo by NATS").want(0, "by NATS\n")
	e, session := f.open()
	e.call("session/prompt", promptParams(session, "echo from an editor"))
	if got := e.said(); got != "from an editor" {
		t.Errorf("the editor was told %q", got)
	}
	e.eof()
	f.run("--nats", f.natsURL, "--fleet", "other", "ps").want(1, "", `no fleet "other"`)
	(&home{t, f.dir, append(f.env, "RAIDERFLEET_NATS_PASSWORD=wrong")}).run("worker").want(1, "", "Authorization")
	// What a file, a flag and the log must not show.
	for _, p := range []*process{f.nats, f.door, f.worker} {
		if strings.Contains(p.stderr.String(), "secret") {
			t.Errorf("%q logs the password", p.args)
		}
	}
	for _, p := range []*process{f.worker, f.door, f.nats} {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%q ended with %d; stderr:\n%s", p.args, code, p.stderr)
		}
	}
}

// A waiting prompt survives kill -9 of the server: client, front door and worker go on.
func TestKillNATS(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	running, session := f.occupy()
	waiting := f.waiting("echo survived")
	f.nats.kill()
	f.startNATS()
	f.run("cancel", session) // is too late when the restart took too long for its lease
	waiting.wait()
	waiting.want(0, "survived\n")
	running.wait() // cancelled, or failed
	f.emptyQueue()
}

// A waiting prompt survives kill -9 of the front door: it runs, and a client that comes
// again to another one sees what it did.
func TestKillFrontDoor(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	running, first := f.occupy()
	waiting := f.waiting("echo survived")
	var session subjects.SessionID
	for _, q := range decode[[]admin.Waiting](t, f.run("queue", "--json")) {
		if q.Place == 1 {
			session = q.Session
		}
	}
	f.door.kill()
	// Both are told how to look at what goes on.
	for p, session := range map[*process]string{running: first, waiting: string(session)} {
		code, told := p.wait(), p.stderr.String()
		if code != 1 || !strings.Contains(told, "closed the connection") || !strings.Contains(told, "raiderfleet queue") || !strings.Contains(told, session) {
			t.Errorf("%q ended with %d; stderr:\n%s", p.args, code, p.stderr)
		}
	}
	if p := f.run("cancel", first); p.code != 0 {
		t.Errorf("the first prompt did not go on: cancel ended with %d; stderr:\n%s", p.code, p.stderr)
	}
	f.emptyQueue()
	e, _ := f.open()
	e.call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, session, f.dir))
	if got := e.said(); got != "survived" {
		t.Errorf("the session's answer is %q", got)
	}
	e.eof()
	f.startDoor()
	f.run("prompt", "--connect", f.acp, "echo again").want(0, "again\n")
}

// A waiting prompt survives kill -9 of the worker: another one takes the lane, and says
// of the running one that its worker was lost.
func TestKillWorker(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	running, _ := f.occupy()
	waiting := f.waiting("echo survived")
	lanes := decode[[]subjects.LaneStatus](t, f.run("ps", "--json"))
	f.worker.kill()
	for _, l := range lanes {
		poll(t, "the end of the raider", func() bool { return !alive(l.PID) })
	}
	f.startWorker()
	waiting.wait()
	waiting.want(0, "survived\n")
	running.wait()
	if running.code != 1 || !strings.Contains(running.stderr.String(), "w1-") {
		t.Errorf("the running prompt ended with %d; stderr:\n%s", running.code, running.stderr)
	}
	f.emptyQueue()
}

// The parts start in any order: the front door and the worker wait for NATS.
func TestPartsWaitForNATS(t *testing.T) {
	t.Parallel()
	f := &fleet{home: newHome(t)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.natsURL = "nats://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f.env = append(f.env, "RAIDERFLEET_NATS_URLS="+f.natsURL)
	worker := f.start("worker")
	worker.says(worker.stderr, "NATS is not there yet")
	f.startNATS()
	f.startDoor()
	f.run("prompt", "--connect", f.acp, "echo x").want(0, "x\n")
	// One that never got that far ends as well when it is told to.
	lost := (&home{t, f.dir, append(f.env, "RAIDERFLEET_NATS_URLS=nats://127.0.0.1:1")}).start("frontdoor")
	lost.says(lost.stderr, "NATS is not there yet")
	lost.signal(syscall.SIGTERM)
	if code := lost.wait(); code != 0 {
		t.Errorf("it ended with %d; stderr:\n%s", code, lost.stderr)
	}
}

func TestVersionAndConfigCheck(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if p := h.run("version"); p.code != 0 || !strings.HasPrefix(p.stdout.String(), "raiderfleet ") {
		t.Errorf("version ended with %d and said %q", p.code, p.stdout)
	}
	if p := h.run("--fleet", "mine", "config", "check"); p.code != 0 || !strings.Contains(p.stdout.String(), "mine") {
		t.Errorf("config check ended with %d and said %q", p.code, p.stdout)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "fleet.yml"), []byte("flet: x\nack_wait: 1\nreplicas: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := h.run("config", "check")
	p.want(1, "", "fleet.yml:1:", "fleet.yml:3:", "did you mean")
	h.run("help").want(0, h.run().stdout.String())
}
