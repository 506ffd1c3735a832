package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// listen starts `events` and waits until it hears of what happens.
func (f *fleet) listen(args ...string) *process {
	f.t.Helper()
	nc, err := nats.Connect(f.natsURL, nats.UserInfo("u", "secret"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(nc.Close)
	p := f.start(append([]string{"events"}, args...)...)
	p.poll("its first event", func() bool {
		// The kind begins as the filters of the tests do.
		if err := nc.Publish(subjects.Fleet("default").FleetEvent("raider.test"), []byte(`{"type":"raider.test"}`)); err != nil {
			f.t.Fatal(err)
		}
		return strings.Contains(p.stdout.String(), "raider.test")
	})
	return p
}

// kinds are the types of the events of a session, in order.
func kinds(t *testing.T, p *process, session subjects.SessionID) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(p.stdout.String()) {
		var e subjects.FleetEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if e.Session == session {
			out = append(out, string(e.Kind))
		}
	}
	return strings.Join(out, " ")
}

// A client with the plain protocol of NATS and ours see the same.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	nc, err := nats.Connect(f.natsURL, nats.UserInfo("u", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	plain, err := nc.SubscribeSync("rf.default.fleet.raider.done")
	if err != nil {
		t.Fatal(err)
	}
	all, raiders := f.listen("--json"), f.listen("--filter", "raider.")
	live := f.listen("--live", "--json")
	done := decode[spawned](t, f.run("spawn", "--json", "--raider", "1demo", "echo hello"))
	f.run("wait", string(done.Prompt)).want(0, string(done.Prompt)+" completed\n")
	all.says(all.stdout, `"raider.done"`)
	all.says(all.stdout, `"raider.queued"`)
	// The front door's may come at any time; a new session is bound beside its first turn.
	const want = "raider.spawned raider.done"
	got := kinds(t, all, done.Session)
	rest, found := got, 0
	for _, kind := range []string{"raider.queued", "session.bound"} {
		found += strings.Count(rest, kind)
		rest = strings.Replace(rest, kind, "", 1)
	}
	if strings.Join(strings.Fields(rest), " ") != want || found != 2 || strings.Index(got, "session.bound") > strings.Index(got, "raider.done") {
		t.Errorf("got %q, want %q, and raider.queued, and session.bound before the end", got, want)
	}
	m, err := plain.NextMsgWithContext(t.Context())
	var e subjects.FleetEvent
	if err != nil || json.Unmarshal(m.Data, &e) != nil || e.Prompt != done.Prompt || e.Outcome != subjects.RunCompleted || e.StopReason != "end_turn" {
		t.Errorf("the plain client got %+v, %v", e, err)
	}
	if text := raiders.says(raiders.stdout, "outcome=completed"); strings.Contains(text, "session.bound") || !strings.Contains(text, "slot=1demo") {
		t.Errorf("filtered:\n%s", text)
	}
	if text := live.says(live.stdout, `"live.outcome"`); !strings.Contains(text, `"text":"hello"`) {
		t.Errorf("live:\n%s", text)
	}
	for _, p := range []*process{all, raiders, live} {
		p.signal(syscall.SIGINT)
		if code := p.wait(); code != 0 {
			t.Errorf("%q ended with %d", p.args, code)
		}
	}
}

// Waiting, a warm process, a cancel and a refusal are told.
func TestEventsOfASlot(t *testing.T) {
	t.Parallel()
	f := startParts(t)
	p := f.listen("--json")
	first := decode[spawned](t, f.run("spawn", "--json", "--raider", "1demo", "sleep 1000"))
	client := f.waiting("echo second")
	p.says(p.stdout, `"raider.waiting"`)
	f.run("cancel", string(first.Prompt)).want(0, string(first.Prompt)+" cancelled\n")
	client.wait()
	client.want(0, "second\n")
	again := decode[spawned](t, f.run("spawn", "--json", "--session", string(first.Session), "echo again"))
	f.run("wait", string(again.Prompt))
	warm := decode[spawned](t, f.run("spawn", "--json", "--session", string(first.Session), "echo warm"))
	f.run("wait", string(warm.Prompt))
	p.says(p.stdout, `"warm":true`)
	refused := f.run("spawn", "--json", "--raider", "2demo", "--cwd", "/no/such/directory", "echo x")
	id := decode[spawned](t, refused)
	if w := f.run("wait", string(id.Prompt)); w.code != 1 || !strings.Contains(w.stderr.String(), "/no/such/directory") {
		t.Errorf("wait ended with %d: %s", w.code, w.stderr)
	}
	text := p.says(p.stdout, `"raider.refused"`)
	if !strings.Contains(text, `"outcome":"cancelled"`) || !strings.Contains(text, `"place":1,"of":2`) {
		t.Errorf("the events are\n%s", text)
	}
	f.worker.signal(syscall.SIGTERM)
	f.worker.wait()
	text = p.says(p.stdout, `"worker.left"`)
	if !strings.Contains(text, `"worker.draining"`) {
		t.Errorf("the events are\n%s", text)
	}
	f.startWorker()
	if text = p.says(p.stdout, `"worker.joined"`); !strings.Contains(text, `"raiders":["demo"]`) {
		t.Errorf("the events are\n%s", text)
	}
}
