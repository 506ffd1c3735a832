package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"raiderfleet/internal/admin"
	"raiderfleet/internal/devfleet"
	"raiderfleet/subjects"
)

func decode[T any](t *testing.T, p *process) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(p.stdout.String()), &v); err != nil || p.code != 0 {
		t.Fatalf("%q ended with %d and said %q (%v); stderr:\n%s", p.args, p.code, p.stdout, err, p.stderr)
	}
	return v
}

func TestDevIsSeenAndStopped(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dev, ready := h.serve("dev")
	if ready.PID != dev.cmd.Process.Pid || ready.ACP == "" || ready.NATS == "" || ready.StateDir != h.devDir() {
		t.Errorf("ready file: %+v", ready)
	}
	for _, path := range []string{ready.Credentials, filepath.Join(h.devDir(), "ready.json")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	dev.says(dev.stderr, "raiderfleet prompt --dev")
	if got := dev.stderr.String(); !strings.Contains(got, ready.ACP) || !strings.Contains(got, ready.NATS) {
		t.Errorf("it does not say where it listens:\n%s", got)
	}

	h.run("dev").want(1, "", "a dev fleet runs there already")
	h.run("prompt", "--dev", "echo joined").want(0, "joined\n")
	h.run("prompt", "echo joined too").want(0, "joined too\n")
	h.run("prompt", "--connect", ready.ACP, "echo by TCP").want(0, "by TCP\n")

	if w := decode[[]subjects.Node](t, h.run("workers", "--json")); len(w) != 1 || w[0].PID != ready.PID {
		t.Errorf("workers: %+v", w)
	}
	running := h.start("prompt", "--raider", "1demo", "--json", "sleep 100")
	running.says(running.stdout, "agent_message_chunk")
	waiting := h.start("prompt", "--raider", "1demo", "--json", "echo next")
	var queue []admin.Waiting
	poll(t, "two prompts in the queue", func() bool {
		queue = decode[[]admin.Waiting](t, h.run("queue", "--json"))
		return len(queue) == 2
	})
	if queue[0].Why != "runs" || queue[1].Why != "1 before it" || queue[1].Lane != "slot-1demo" {
		t.Errorf("queue: %+v", queue)
	}
	lanes := decode[[]subjects.LaneStatus](t, h.run("ps", "--json"))
	found := false
	for _, l := range lanes {
		found = found || l.Lane == "slot-1demo" && l.PID > 0 && l.State == "running" && l.Session == queue[0].Session
	}
	if !found {
		t.Errorf("ps: %+v", lanes)
	}
	h.run("cancel", string(queue[0].Session)).want(0, string(queue[0].Prompt)+" cancelled\n")
	if code := running.wait(); code != 130 {
		t.Errorf("the cancelled prompt ended with %d", code)
	}
	if got := running.stderr.String(); !strings.Contains(got, "cancelled by someone else") {
		t.Errorf("the cancelled prompt says %q", got)
	}
	if code := waiting.wait(); code != 0 {
		t.Errorf("the next prompt ended with %d", code)
	}
	h.run("cancel", string(queue[0].Prompt)).want(1, "", "no such prompt")
	elsewhere := &home{t, h.dir, append(h.env, "RAIDERFLEET_NATS_URLS=nats://127.0.0.1:1")}
	elsewhere.run("workers", "--json").want(1, "", "connect to NATS")
	if w := decode[[]subjects.Node](t, elsewhere.run("workers", "--json", "--dev")); len(w) != 1 || w[0].PID != ready.PID {
		t.Errorf("with --dev the workers are %+v", w)
	}
	elsewhere.run("prompt", "--dev", "echo joined").want(0, "joined\n")

	dev.signal(syscall.SIGTERM)
	if code := dev.wait(); code != 0 {
		t.Errorf("it ended with %d; stderr:\n%s", code, dev.stderr)
	}
	if _, err := os.Stat(filepath.Join(h.devDir(), "ready.json")); !os.IsNotExist(err) {
		t.Errorf("the ready file is left: %v", err)
	}
	h.run("ps").want(1, "", "no dev fleet is running")
}

func TestDevKeepsItsStateOverKill(t *testing.T) {
	t.Parallel()
	h := newHome(t, "RAIDERFLEET_ACK_WAIT=2s")
	dev, _ := h.serve("dev")
	running := h.start("prompt", "--raider", "1demo", "--json", "sleep 100")
	running.says(running.stdout, "agent_message_chunk")
	waiting := h.start("prompt", "--raider", "1demo", "echo survived")
	poll(t, "two prompts in the queue", func() bool {
		return len(decode[[]admin.Waiting](t, h.run("queue", "--json"))) == 2
	})
	dev.kill()
	running.wait()
	waiting.wait()
	// What it has left is not taken for a fleet.
	h.run("ps").want(1, "", "does not answer")
	dev, _ = h.serve("dev")
	poll(t, "an empty queue", func() bool {
		return len(decode[[]admin.Waiting](t, h.run("queue", "--json"))) == 0
	})
	dev.signal(syscall.SIGTERM)
	dev.wait()
}

func TestDevMemory(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	h := newHome(t, "TMPDIR="+tmp)
	dev, ready := h.serve("dev", "--memory")
	h.run("prompt", "--dev", "echo x").want(0, "x\n")
	dev.signal(syscall.SIGINT)
	if code := dev.wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(ready.StateDir, "nats")); err == nil {
		t.Error("it has stored something")
	}
}

func TestDevPortIsTaken(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	_, ready := h.serve("dev")
	other := newHome(t)
	p := other.run("dev", "--listen", ready.ACP)
	p.want(1, "", "raiderfleet: listen for ACP: "+ready.ACP+" is taken by process "+fmt.Sprint(ready.PID), "--listen")
	other.run("frontdoor", "--nats", "nats://127.0.0.1:1", "--listen", ready.ACP).
		want(1, "", "raiderfleet: listen for ACP: "+ready.ACP+" is taken by process "+fmt.Sprint(ready.PID), "--listen")
	if _, err := devfleet.ReadReady(filepath.Join(other.devDir(), "ready.json")); err == nil {
		t.Error("a fleet that failed to start left a ready file")
	}
}

// A fleet that ends says what it waits for, and so do the commands that look at it.
func TestDevSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dev, _ := h.serve("dev")
	running := h.start("prompt", "--raider", "1demo", "--json", "sleep 8")
	running.says(running.stdout, "agent_message_chunk")
	stop := h.start("dev", "--stop")
	stop.says(stop.stderr, fmt.Sprintf("process %d is told to end", dev.cmd.Process.Pid))
	dev.says(dev.stderr, "the fleet ends when what runs has ended, in 1m0s at the latest")
	dev.says(dev.stderr, "  1demo, session ")

	ending := fmt.Sprintf("the dev fleet, process %d, is ending", dev.cmd.Process.Pid)
	ps := h.run("ps", "--json")
	if lanes := decode[[]subjects.LaneStatus](t, ps); len(lanes) != 1 || lanes[0].Lane != "slot-1demo" || !strings.Contains(ps.stderr.String(), ending) {
		t.Errorf("ps: %+v; stderr:\n%s", lanes, ps.stderr)
	}
	if queue := h.run("queue", "--json"); len(decode[[]admin.Waiting](t, queue)) != 1 || !strings.Contains(queue.stderr.String(), ending) {
		t.Errorf("queue: %s; stderr:\n%s", queue.stdout, queue.stderr)
	}
	h.run("prompt", "echo x").want(1, "", "no dev fleet is running: process", "is ending")

	if code := running.wait(); code != 0 {
		t.Errorf("the run that it waited for ended with %d; stderr:\n%s", code, running.stderr)
	}
	if code := dev.wait(); code != 0 {
		t.Errorf("it ended with %d; stderr:\n%s", code, dev.stderr)
	}
	stop.wait()
	stop.want(0, "", "it has ended")
	h.run("dev", "--stop").want(1, "", "no dev fleet is running")
	h.run("ps").want(1, "", "no dev fleet is running")
	if left, err := filepath.Glob(filepath.Join(h.devDir(), "*ing.json")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A fleet that another command has started is stopped, too.
func TestDevStopsADetachedFleet(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	e, session := h.open()
	e.call("session/prompt", promptParams(session, "echo x"))
	e.eof()
	ready, err := devfleet.ReadReady(filepath.Join(h.devDir(), "ready.json"))
	if err != nil || !alive(ready.PID) {
		t.Fatalf("%+v, %v", ready, err)
	}
	h.run("dev", "--stop").want(0, "", fmt.Sprintf("process %d is told to end", ready.PID), "it has ended")
	if alive(ready.PID) {
		t.Error("it is alive")
	}
}

// An editor that is open while the fleet is killed and started again goes on.
func TestEditorOutlivesItsDevFleet(t *testing.T) {
	t.Parallel()
	h := newHome(t, "RAIDERFLEET_ACK_WAIT=2s")
	dev, before := h.serve("dev")
	e, session := h.open()
	e.call("session/prompt", promptParams(session, "echo one "))
	dev.kill()
	_, after := h.serve("dev")
	if before.NATS != after.NATS {
		t.Errorf("the server moved from %s to %s", before.NATS, after.NATS)
	}
	e.call("session/prompt", promptParams(session, "echo two"))
	if got := e.said(); got != "one two" {
		t.Errorf("the editor was told %q", got)
	}
	e.eof()
}
