package conformance

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/frontdoor"
	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/internal/stream"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

// ackWait is long: nothing here tests losses, and a busy machine must not make one.
const ackWait = 15 * time.Second

// fleet is a NATS server, a worker and front doors in this process.
type fleet struct {
	url   string
	bus   *bus.Bus // an observer's
	doors []*door
}

// door is a front door and where it listens.
type door struct {
	ctx   context.Context //nolint:containedctx // the door's life
	door  *frontdoor.FrontDoor
	addr  string
	web   string // for HTTP and WebSocket
	conns sync.WaitGroup
}

// settings change a fleet's configuration before it starts.
type settings struct {
	worker    worker.Config
	frontDoor frontdoor.Config
	doors     int
}

// startFleet starts a fleet that ends with the test. A worker with the demo raider
// serves it, `demo`, and `other`, the same under another name.
func startFleet(tb testing.TB, change func(*settings)) *fleet {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	raider := func(name string) worker.Raider {
		return worker.Raider{
			Name: subjects.Raider(name), Command: []string{exe, "demo"}, PassEnv: []string{"GORACE"},
			Env: map[string]string{"RAIDERFLEET_DEMO_STATE": tb.TempDir()},
		}
	}
	s := settings{
		doors: 1,
		worker: worker.Config{
			Name: "w1", Version: "test", StateDir: tb.TempDir(), Exe: []string{exe, "shim"}, Capacity: 8, MaxWarm: 64,
			Raiders:           []worker.Raider{raider("demo"), raider("other")},
			PermissionTimeout: patience, CancelGrace: 5 * time.Second, ReconnectGrace: 2 * time.Second,
			IdleTTL: 10 * time.Minute, DrainTimeout: time.Second, Logger: log,
		},
		frontDoor: frontdoor.Config{
			Name: "fd", Version: "test", MaxBacklog: 1000, ReconnectGrace: 2 * time.Second, OnDisconnect: "keep", Logger: log,
			Raiders: []frontdoor.Raider{
				{Name: "demo", Description: "demo", Prompt: frontdoor.PromptCapabilities{EmbeddedContext: true}, Eager: true},
				{Name: "other", Description: "demo", Prompt: frontdoor.PromptCapabilities{EmbeddedContext: true}, Eager: true},
			},
		},
	}
	if change != nil {
		change(&s)
	}
	f := &fleet{url: natstest.Server(tb).ClientURL()}
	f.bus = f.connect(tb)
	if err := f.bus.Declare(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	f.startWorker(tb, s.worker)
	for range s.doors {
		f.startDoor(tb, s.frontDoor)
	}
	return f
}

func (f *fleet) connect(tb testing.TB) *bus.Bus {
	tb.Helper()
	b, err := bus.Connect(tb.Context(), bus.Options{
		URLs: []string{f.url}, Name: tb.Name(), Layout: natstest.Layout(1), AckWait: ackWait,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// life is a context that ends after all later cleanups of the test.
func life(tb testing.TB) (context.Context, context.CancelFunc) {
	tb.Helper()
	return context.WithCancel(context.WithoutCancel(tb.Context()))
}

func (f *fleet) startWorker(tb testing.TB, c worker.Config) {
	tb.Helper()
	w, err := worker.New(f.connect(tb), c)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := life(tb)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("worker: %v", err)
		}
	})
	select {
	case <-w.Ready():
	case err := <-ended:
		ended <- err
		tb.Fatalf("worker did not start: %v", err)
	}
}

func (f *fleet) startDoor(tb testing.TB, c frontdoor.Config) {
	tb.Helper()
	fd, err := frontdoor.New(f.connect(tb), c)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := life(tb)
	d := &door{ctx: ctx, door: fd, addr: listener.Addr().String(), web: web.Addr().String()}
	var running sync.WaitGroup
	report := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			tb.Errorf("%s: %v", what, err)
		}
	}
	running.Go(func() { report("front door", fd.Run(ctx)) })
	running.Go(func() { report("front door's listener", fd.ServeTCP(ctx, listener)) })
	running.Go(func() { report("front door's listener for HTTP", fd.ServeWeb(ctx, web)) })
	tb.Cleanup(func() {
		cancel()
		d.conns.Wait()
		running.Wait()
	})
	f.doors = append(f.doors, d)
}

// transports are the ways to a front door that every rule is tested on.
var transports = []string{"pipe", "tcp", "websocket", "http"}

// byLine are those on which a message is a line.
var byLine = transports[:2]

// dial opens a connection to front door n that ends with the test.
func (f *fleet) dial(tb testing.TB, transport string, n int) net.Conn {
	tb.Helper()
	d := f.doors[n]
	var conn net.Conn
	switch transport {
	case "websocket":
		return overWebSocket(tb, d.web)
	case "http":
		return overHTTP(tb, d.web)
	case "tcp":
		var err error
		if conn, err = net.Dial("tcp", d.addr); err != nil {
			tb.Fatal(err)
		}
	default:
		var server net.Conn
		conn, server = net.Pipe()
		d.conns.Go(func() {
			defer func() { _ = server.Close() }() // Serve may have closed it
			if err := d.door.Serve(d.ctx, server, server, frontdoor.ConnOptions{GoneAtEOF: true}); err != nil && d.ctx.Err() == nil {
				tb.Logf("connection ended: %v", err)
			}
		})
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client is a client of front door 0 that has initialized.
func (f *fleet) client(tb testing.TB, transport string) *client {
	tb.Helper()
	c := newClient(tb, f.dial(tb, transport, 0))
	c.initialize()
	return c
}

// events watches fleet events of one kind from now on.
func (f *fleet) events(tb testing.TB, kind subjects.FleetEventKind) *events {
	tb.Helper()
	e := &events{tb: tb, f: f}
	sub, err := f.bus.Conn().Subscribe(f.bus.Fleet().FleetEvent(kind), func(m *nats.Msg) {
		var ev subjects.FleetEvent
		if json.Unmarshal(m.Data, &ev) == nil {
			e.mu.Lock()
			e.all = append(e.all, ev)
			e.mu.Unlock()
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := f.bus.Conn().Flush(); err != nil {
		tb.Fatal(err)
	}
	return e
}

// events is what was seen of one kind.
type events struct {
	tb  testing.TB
	f   *fleet
	mu  sync.Mutex // guards all
	all []subjects.FleetEvent
}

func (e *events) of(session string) []subjects.FleetEvent {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []subjects.FleetEvent
	for _, ev := range e.all {
		if string(ev.Session) == session {
			out = append(out, ev)
		}
	}
	return out
}

// onEach runs a test of the front door on every transport, with a fleet that they share.
// With -short it is one of them, always the same for a test: the race detector finds in all
// tests together what it would find in each of them twice.
func onEach(t *testing.T, change func(*settings), test func(*testing.T, *fleet, string)) {
	t.Helper()
	onEachOf(t, transports, change, test)
}

// onLines is onEach for what is about lines.
func onLines(t *testing.T, change func(*settings), test func(*testing.T, *fleet, string)) {
	t.Helper()
	onEachOf(t, byLine, change, test)
}

func onEachOf(t *testing.T, on []string, change func(*settings), test func(*testing.T, *fleet, string)) {
	t.Helper()
	f := startFleet(t, change)
	if testing.Short() {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(t.Name()))
		on = on[sum.Sum32()%uint32(len(on)):][:1]
	}
	for _, transport := range on {
		t.Run(transport, func(t *testing.T) {
			test(t, f, transport)
		})
	}
}

// onEachKind runs a test on every transport, and with raiders of every kind: what is not
// about their format is the same for all.
func onEachKind(t *testing.T, change func(*settings), test func(*testing.T, *fleet, string)) {
	t.Helper()
	onEachKindOf(t, transports, change, test)
}

func onEachKindOf(t *testing.T, on []string, change func(*settings), test func(*testing.T, *fleet, string)) {
	t.Helper()
	onEachOf(t, on, change, test)
	t.Run("stream", func(t *testing.T) {
		f := startFleet(t, func(s *settings) {
			s.streamed(t)
			if change != nil {
				change(s)
			}
		})
		test(t, f, "tcp")
	})
}

// streams says whether a test of onEachKind runs with stream raiders.
func streams(t *testing.T) bool {
	t.Helper()
	return strings.HasSuffix(t.Name(), "/stream")
}

// streamed makes stream raiders of the fleet's raiders: a command that is run once for each
// prompt, behind the adapter.
func (s *settings) streamed(tb testing.TB) {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	args, err := stream.Config{Command: []string{exe, "demo", "--stream-json", "--session={session}", "--root={cwd}", "--", "{prompt}"}}.Args()
	if err != nil {
		tb.Fatal(err)
	}
	for i := range s.worker.Raiders {
		r := &s.worker.Raiders[i]
		r.Kind, r.Command = worker.KindStream, append([]string{exe, "stream-raider"}, args...)
	}
	for i := range s.frontDoor.Raiders {
		s.frontDoor.Raiders[i].Eager = false // there is nothing to open ahead
	}
}
