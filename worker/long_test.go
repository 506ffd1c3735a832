package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// workerMain is a worker in a process of its own: its arguments are the server and a state
// directory. It ends with its input, and says then how large its heap has been.
func workerMain(args []string) int {
	layout := natstest.Layout(1)
	layout.Memory = false
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	b, err := bus.Connect(context.Background(), bus.Options{URLs: args[:1], Layout: layout, AckWait: 10 * time.Second})
	if err != nil {
		return fail(err)
	}
	defer b.Close()
	exe, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	w, err := New(b, Config{
		Name: "w", StateDir: args[1], DrainTimeout: time.Second,
		Raiders: []Raider{{Name: bjorn, Command: []string{exe, "test-raider"}, PassEnv: []string{"GORACE"}}},
	})
	if err != nil {
		return fail(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	most := uint64(0)
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for tick := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			metrics.Read(heap)
			most = max(most, heap[0].Value.Uint64())
		}
	}()
	if err := w.Run(ctx); err != nil {
		return fail(err)
	}
	<-measured
	fmt.Printf("heap %d\n", most)
	return 0
}

// told waits for the session's first transcript entry: much has to be stored before.
func (s *session) told() {
	s.f.t.Helper()
	natstest.Eventually(s.f.t, time.Minute, "its transcript", func() (bool, any) {
		_, err := s.f.b.Last(s.f.t.Context(), s.f.f.TranscriptStream(), s.f.f.Transcript(s.meta.Session))
		return err == nil, err
	})
}

// floodOf reads back what of a flood an entry has, and fails unless it is all of it, in order.
func (s *session) floodOf(e subjects.TranscriptEntry, chunks int) {
	s.f.t.Helper()
	var text strings.Builder
	next := 0
	take := func(updates []json.RawMessage) {
		for _, raw := range updates {
			c, ok := asChunk(raw)
			if !ok || c.Kind != "agent_message_chunk" {
				continue
			}
			text.WriteString(c.Text)
		}
		for text.Len() >= floodBytes {
			all := text.String()
			if all[:floodBytes] != floodChunk(next) {
				s.f.t.Fatalf("chunk %d is %.20q", next, all)
			}
			next++
			text.Reset()
			text.WriteString(all[floodBytes:])
		}
	}
	for _, part := range e.Parts {
		body, err := s.f.b.GetPayload(s.f.t.Context(), part)
		if err != nil {
			s.f.t.Fatal(err)
		}
		var updates []json.RawMessage
		if err := json.Unmarshal(body, &updates); err != nil {
			s.f.t.Fatal(err)
		}
		take(updates)
	}
	take(e.Updates)
	if next != chunks || text.Len() != 0 {
		s.f.t.Fatalf("%d chunks, and %d bytes", next, text.Len())
	}
}

// A turn of 200 MB goes through a worker that never has more than a part of it in memory, and
// its transcript has it all.
func TestALongTurnNeedsLittleMemory(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	chunks := 2000
	if testing.Short() {
		chunks = 150 // the heap then says little, the parts all the same
	}
	layout := natstest.Layout(1)
	layout.Memory = false
	f := newFleetAt(t, natstest.Server(t).ClientURL(), layout, 10*time.Second)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "test-worker", f.url, t.TempDir())
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.Itoa(limit))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := f.session(nil)
	f.want(s.prompt("flood %d", chunks), subjects.RunCompleted, "", 5*time.Minute) // the race detector makes it slow
	s.told()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	heap := uint64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "heap %d", &heap)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("at most %d MB", heap/1_000_000)
	if heap == 0 || heap > 3*limit/2 {
		t.Errorf("its heap had %d bytes", heap)
	}
	entries := s.transcript()
	if len(entries) != 1 || len(entries[0].Parts) < chunks*floodBytes/maxStory-1 {
		t.Fatalf("%d entries", len(entries))
	}
	s.floodOf(entries[0], chunks)
}

// The transcript of a long run whose worker was lost is made in parts as well.
func TestALongLostTurnIsRetoldInParts(t *testing.T) {
	t.Parallel()
	const chunks = 50
	f := newFleet(t, time.Second)
	s := f.session(nil)
	dead, _ := s.deadClaim()
	p, _ := s.store("say x")
	f.putRecord(p, s.runningUnder(dead, 1))
	s.leftBy(dead, p, 1, subjects.EventUser, `{"prompt":[{"type":"text","text":"hello"}]}`)
	for i := range chunks {
		s.leftBy(dead, p, uint64(i+2), subjects.EventUpdate, string(subjects.TextChunk(s.meta.Session, "agent_message_chunk", "", floodChunk(i))))
	}
	f.run(nil)
	s.baton()
	f.want(p, subjects.RunFailed, "was lost", 10*time.Second)
	s.told()
	entries := s.transcript()
	if len(entries) != 1 || len(entries[0].Parts) != 1 || entries[0].Outcome == nil {
		t.Fatalf("%d entries", len(entries))
	}
	s.floodOf(entries[0], chunks)
}
