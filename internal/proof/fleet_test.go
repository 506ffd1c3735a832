package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"raiderfleet/internal/bus"
)

func clusterOpts(port int) *server.ClusterOpts {
	// NoAdvertise: servers and clients know of no way but the one through a proxy.
	return &server.ClusterOpts{Name: "proof", Host: "127.0.0.1", Port: port, PoolSize: -1, NoAdvertise: true}
}

// process is a child process that can be killed, frozen and started again.
type process struct {
	args []string
	log  string

	mu     sync.Mutex // guards the rest
	cmd    *exec.Cmd
	ended  chan struct{}
	frozen bool
}

func (p *process) start(tb testing.TB) {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(exe, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	// Built with -race, each of the hundreds of processes would sleep a second at its end.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.ended, p.frozen = cmd, ended, false
	p.mu.Unlock()
	go func() { _ = cmd.Wait(); close(ended) }()
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	select {
	case <-p.ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(sig)
	p.frozen = sig == syscall.SIGSTOP
}

// stop ends the process with sig and waits, at the most for limit; then it kills.
func (p *process) stop(sig syscall.Signal, limit time.Duration) bool {
	p.mu.Lock()
	cmd, ended, frozen := p.cmd, p.ended, p.frozen
	p.mu.Unlock()
	if cmd == nil {
		return true
	}
	_ = cmd.Process.Signal(sig)
	if frozen {
		_ = cmd.Process.Signal(syscall.SIGCONT)
	}
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		_ = cmd.Process.Kill()
		<-ended
		return false
	}
}

// fleet is servers, workers and front doors behind proxies, and the checker's own connection.
type fleet struct {
	tb       testing.TB
	dir      string
	seed     uint64
	replicas int
	ackWait  time.Duration
	urls     []string
	servers  []*process
	routes   [][]*proxy // of each server: all that lie between it and the others
	workers  []*process
	proxies  []*proxy // the workers'
	doors    []*door
	bus      *bus.Bus
	journal  string
	h        *history
}

// Each part of the checker draws from a sequence of its own, so that what one does changes
// nothing for the others, and a seed brings the same again.
const (
	laneOfDirect = iota + 1
	laneOfVisitor
	laneOfFaults
)

func (f *fleet) rng(lane, part, n int) *rand.Rand {
	return rand.New(rand.NewPCG(f.seed, uint64(f.replicas)<<60|uint64(lane)<<56|uint64(part)<<32|uint64(n)))
}

// size is how many processes a fleet has.
type size struct{ replicas, workers, doors int }

func newFleet(tb testing.TB, n size, seed uint64, ackWait time.Duration) *fleet {
	tb.Helper()
	dir := tb.TempDir()
	f := &fleet{
		tb: tb, dir: dir, seed: seed, replicas: n.replicas, ackWait: ackWait,
		journal: filepath.Join(dir, "journal"), h: newHistory(), routes: make([][]*proxy, n.replicas),
	}
	var ports []int
	for range 2 * n.replicas {
		ports = append(ports, freePort(tb))
	}
	for i := range n.replicas {
		f.urls = append(f.urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	tb.Cleanup(f.end)
	for i := range n.replicas {
		spec := serverSpec{Name: fmt.Sprintf("n%d", i), Port: ports[i], Dir: filepath.Join(dir, fmt.Sprintf("n%d", i))}
		if n.replicas > 1 {
			spec.ClusterPort = ports[n.replicas+i]
			for j := range n.replicas {
				if j != i {
					// Nothing is told of other ways, so this is the only one.
					px := newProxy(tb, fmt.Sprintf("127.0.0.1:%d", ports[n.replicas+j]), nil)
					spec.Routes = append(spec.Routes, px.url())
					f.routes[i], f.routes[j] = append(f.routes[i], px), append(f.routes[j], px)
				}
			}
		}
		p := &process{args: []string{"proof-server", mustJSON(spec)}, log: filepath.Join(dir, spec.Name+".log")}
		p.start(tb)
		f.servers = append(f.servers, p)
	}
	f.connect()
	server := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i%n.replicas]) }
	for i := range n.workers {
		px := newProxy(tb, server(i), nil)
		f.proxies = append(f.proxies, px)
		name := fmt.Sprintf("w%d", i)
		spec := workerSpec{
			Name: name, StateDir: filepath.Join(dir, name), URL: px.url(), Journal: f.journal,
			Capacity: 3, MaxWarm: 4, Replicas: n.replicas, AckWait: ackWait,
		}
		p := &process{args: []string{"proof-worker", mustJSON(spec)}, log: filepath.Join(dir, name+".log")}
		p.start(tb)
		f.workers = append(f.workers, p)
	}
	for i := range n.doors {
		f.doors = append(f.doors, f.newDoor(fmt.Sprintf("f%d", i), server(i)))
	}
	return f
}

func (f *fleet) connect() {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		b, err := bus.Connect(ctx, bus.Options{URLs: f.urls, Name: "checker", Layout: layout(f.replicas), AckWait: f.ackWait})
		if err == nil {
			for {
				try, done := context.WithTimeout(ctx, 10*time.Second)
				err = b.Declare(try)
				done()
				if err == nil {
					f.bus = b
					return
				}
				if ctx.Err() != nil {
					b.Close()
					break
				}
				pause(ctx, 100*time.Millisecond)
			}
		}
		if ctx.Err() != nil {
			f.tb.Fatalf("servers don't serve within a minute: %v", err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func (f *fleet) end() {
	for _, p := range f.proxies {
		p.restore(false)
	}
	for _, d := range f.doors {
		d.px.restore(false)
		d.stop(syscall.SIGKILL, time.Second)
	}
	for _, w := range f.workers {
		w.stop(syscall.SIGKILL, time.Second)
	}
	if f.bus != nil {
		f.bus.Close()
	}
	for _, s := range f.servers {
		s.stop(syscall.SIGKILL, time.Second)
	}
	if f.tb.Failed() {
		if keep := os.Getenv("RAIDERFLEET_PROOF_KEEP"); keep != "" {
			_ = os.CopyFS(keep, os.DirFS(f.dir))
			f.tb.Logf("logs and journal are in %s", keep)
		}
	}
}

// pause waits d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// until repeats f until it returns nil or limit has passed; then the last error fails the test.
func until(tb testing.TB, limit time.Duration, what string, f func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		try, done := context.WithTimeout(ctx, 5*time.Second)
		err := f(try)
		done()
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || last == nil {
			last = err
		}
		pause(ctx, 50*time.Millisecond)
	}
	tb.Fatalf("%s: not within %v: %v", what, limit, last)
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
