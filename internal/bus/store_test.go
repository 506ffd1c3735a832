//go:build unix

package bus_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// storeVariable makes a process of TestStoreProcess: it has the directory of its store.
const storeVariable = "RAIDERFLEET_TEST_STORE"

// What a store's process is told.
const (
	sayFull  = "full"  // no write succeeds, and the disk has nothing free
	sayBlind = "blind" // no write succeeds, and the disk seems to have room
	sayRoom  = "room"
)

// A limit for files is the process's, so the server that is hit by it is one of its own. On
// a full disk a write fails in the same way.
func TestStoreProcess(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(storeVariable)
	if dir == "" {
		return // started by the tests below only
	}
	o := bus.ServerOptions{Port: -1, StoreDir: dir, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	s, err := bus.StartServer(o)
	if err != nil {
		t.Fatal(err)
	}
	var none atomic.Bool
	k := bus.NewStoreKeeper(s, o, func() (uint64, uint64) {
		if none.Load() {
			return 0, 1 << 40
		}
		return 1 << 40, 1 << 40
	})
	var had syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &had); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	fmt.Println(s.ClientURL())
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	now := time.Now()
	for open := true; open; {
		var line string
		select {
		case <-tick.C:
			now = now.Add(time.Second) // each look is a second later for it
			k.Look(now)
			continue
		case line, open = <-lines:
		}
		limit := had
		if line == sayFull || line == sayBlind {
			limit.Cur = 0
		}
		none.Store(line == sayFull)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		fmt.Println("done")
	}
	s.Shutdown()
	s.WaitForShutdown()
}

// storeProcess is a server in a process of its own.
type storeProcess struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
	b   *bus.Bus
}

func startStore(t *testing.T) *storeProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoreProcess$", "-test.v")
	cmd.Env = append(os.Environ(), storeVariable+"="+t.TempDir())
	var log strings.Builder
	cmd.Stderr = &log
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
	p := &storeProcess{t: t, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = in.Close()
		for p.out.Scan() { // to its end
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server's process: %v", err)
		}
		if t.Failed() {
			t.Logf("its log:\n%.20000s", log.String())
		}
	})
	url := p.read("nats://")
	p.b, err = bus.Connect(t.Context(), bus.Options{
		URLs: []string{url}, Layout: subjects.Layout{Fleet: "test", Replicas: 1, MaxBacklog: 1 << 20}, AckWait: natstest.AckWait,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.b.Close)
	if err := p.b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// read waits for a line of its output that begins so.
func (p *storeProcess) read(prefix string) string {
	p.t.Helper()
	for p.out.Scan() {
		if strings.HasPrefix(p.out.Text(), prefix) {
			return p.out.Text()
		}
	}
	p.t.Fatalf("the server's process has ended: %v", p.out.Err())
	return ""
}

func (p *storeProcess) say(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatal(err)
	}
	p.read("done")
}

func (p *storeProcess) publish(body string) (uint64, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 500*time.Millisecond)
	defer cancel()
	return p.b.Publish(ctx, &nats.Msg{Subject: p.b.Fleet().Backlog("bjorn", "sess-s1", "local"), Data: []byte(body)})
}

// Over a full disk nothing that was acknowledged is lost, what can't be stored is refused as
// such, and when there is room again all goes on, without a restart and on the same link.
func TestTheStoreOverAFullDisk(t *testing.T) {
	t.Parallel()
	for _, full := range []string{sayFull, sayBlind} {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			p := startStore(t)
			link := p.b.Link()
			accepted := map[uint64]string{}
			accept := func(n int) {
				t.Helper()
				for i := range n {
					body := fmt.Sprintf("%s %d %s", full, i, strings.Repeat("x", 5000))
					seq, err := p.publish(body)
					if err != nil {
						t.Fatal(err)
					}
					accepted[seq] = body
				}
			}
			accept(100)
			for range 2 {
				p.say(full)
				natstest.Eventually(t, 20*time.Second, "nothing is stored", func() (bool, any) {
					seq, err := p.publish("late")
					if err == nil {
						accepted[seq] = "late"
					}
					// A disk that seems to have room leaves publishes unanswered.
					return errors.Is(err, bus.ErrNoSpace) || full == sayBlind && err != nil, err
				})
				p.say(sayRoom)
				natstest.Eventually(t, 20*time.Second, "it is stored again", func() (bool, any) {
					seq, err := p.publish("again")
					if err == nil {
						accepted[seq] = "again"
					}
					return err == nil, err
				})
				accept(10)
				// In another stream too, which was not written to meanwhile.
				if _, err := p.b.SetJSON(t.Context(), p.b.Fleet().RunsBucket(), "p1", 1, 0); err != nil {
					t.Error(err)
				}
			}
			for seq, want := range accepted {
				m, err := p.b.Next(t.Context(), p.b.Fleet().BacklogStream(), ">", seq)
				if err != nil || m.Seq != seq || string(m.Data) != want {
					t.Fatalf("%d was accepted and is %d %.20q, %v", seq, m.Seq, m.Data, err)
				}
			}
			if link.Err() != nil {
				t.Error("the link was lost")
			}
		})
	}
}

// A limit that was worked out while the disk was full is worked out anew when there is room.
func TestTheStoresLimitFollowsTheRoom(t *testing.T) {
	t.Parallel()
	o := bus.ServerOptions{Port: -1, StoreDir: t.TempDir()}
	s, err := bus.StartServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	b := natstest.Connect(t, s.ClientURL(), 1)
	if _, err := b.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	publish := func() error {
		_, err := b.Publish(t.Context(), &nats.Msg{Subject: "s", Data: make([]byte, 512<<10)})
		return err
	}
	for range 4 {
		if err := publish(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ShutdownJetStream(); err != nil {
		t.Fatal(err)
	}
	if err := s.EnableJetStream(&server.JetStreamConfig{StoreDir: o.StoreDir, MaxMemory: 1 << 20, MaxStore: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := publish(); !errors.Is(err, bus.ErrNoSpace) {
		t.Fatalf("over the limit: %v", err)
	}
	free := uint64(0)
	k := bus.NewStoreKeeper(s, o, func() (uint64, uint64) { return free, 100 << 20 })
	for i := range 10 {
		k.Look(time.Now().Add(time.Duration(i) * time.Minute))
	}
	if err := publish(); !errors.Is(err, bus.ErrNoSpace) {
		t.Fatalf("the disk is full: %v", err)
	}
	free = 50 << 20
	for i := range 2 {
		k.Look(time.Now().Add(time.Duration(i) * time.Hour))
	}
	if err := publish(); err != nil {
		t.Errorf("there is room: %v", err)
	}
}
