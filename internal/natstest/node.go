package natstest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"raiderfleet/internal/bus"
)

// Node is a server that may be stopped and started again on the same port and files,
// alone or in a cluster. Its methods are for one goroutine at a time.
type Node struct {
	// Server is nil while the node is down.
	Server *server.Server

	name, dir string
	port      int
	cluster   *server.ClusterOpts // nil for a server alone
	routes    []string
}

// Single starts one server that may be stopped and started again. It ends with the test.
func Single(tb testing.TB) *Node {
	tb.Helper()
	n := &Node{name: "n1", port: freePorts(tb, 1)[0], dir: tb.TempDir()}
	n.start(tb)
	return n
}

// Cluster starts three servers that form a cluster and returns when JetStream has a
// leader. They end with the test; one that was stopped may be started again.
func Cluster(tb testing.TB) []*Node {
	tb.Helper()
	const size = 3
	ports := freePorts(tb, 2*size)
	var routes []string
	for _, p := range ports[size:] {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	nodes := make([]*Node, size)
	for i := range nodes {
		nodes[i] = &Node{
			name: fmt.Sprintf("n%d", i+1), port: ports[i], dir: tb.TempDir(),
			// PoolSize -1: one connection between two servers is enough for tests.
			cluster: &server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[size+i], PoolSize: -1},
			routes:  routes,
		}
		nodes[i].start(tb)
	}
	tb.Cleanup(func() {
		running := 0
		for _, n := range nodes {
			if n.Server != nil {
				running++
			}
		}
		if running > size/2 { // fewer never become healthy
			if last := settle(nodes, 10*time.Second); last != "" {
				tb.Logf("stopped although not healthy: %s", last)
			}
		}
	})
	WaitLeader(tb, nodes)
	return nodes
}

// URLs is the client URLs of all nodes, with commas between them, as Connect takes them.
func URLs(nodes []*Node) string {
	urls := make([]string, len(nodes))
	for i, n := range nodes {
		urls[i] = n.URL()
	}
	return strings.Join(urls, ",")
}

// WaitLeader blocks until one of the running nodes leads JetStream, at most a minute.
func WaitLeader(tb testing.TB, nodes []*Node) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var running []string
		for _, n := range nodes {
			if n.Server == nil {
				continue
			}
			if n.Server.JetStreamIsLeader() {
				return
			}
			running = append(running, fmt.Sprintf("%s with %d routes", n.name, n.Server.NumRoutes()))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("no JetStream leader within a minute; running: %s", strings.Join(running, ", "))
		}
	}
}

// WaitHealthy blocks until the running nodes have all their streams and consumers and
// these are current, at most a minute. Do it before Stop: a server that is stopped while
// it makes a stream leaves goroutines behind.
func WaitHealthy(tb testing.TB, nodes []*Node) {
	tb.Helper()
	if last := settle(nodes, time.Minute); last != "" {
		tb.Fatalf("not healthy within a minute: %s", last)
	}
}

// settle is WaitHealthy that returns the last state, "" when all is well.
func settle(nodes []*Node, within time.Duration) string {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, n := range nodes {
		for n.Server != nil {
			status := n.Server.Healthz(nil)
			if status.StatusCode == http.StatusOK {
				break
			}
			select {
			case <-tick.C:
			case <-deadline.C:
				return fmt.Sprintf("%s: %s %s", n.name, status.Status, status.Error)
			}
		}
	}
	return ""
}

// URL is the node's client URL, the same over restarts.
func (n *Node) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.port) }

// Start starts the node on its own ports and files. It blocks until clients are served.
func (n *Node) Start() error {
	s, err := bus.StartServer(bus.ServerOptions{
		Name: n.name, Port: n.port, StoreDir: n.dir, Cluster: n.cluster, Routes: n.routes,
	})
	if err != nil {
		return err
	}
	n.Server = s
	return nil
}

// Stop shuts the node down and waits for it; its files stay.
func (n *Node) Stop() {
	if n.Server == nil {
		return
	}
	n.Server.Shutdown()
	n.Server.WaitForShutdown()
	n.Server = nil
}

func (n *Node) start(tb testing.TB) {
	tb.Helper()
	if err := n.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(n.Stop)
}

// freePorts returns n different ports that nobody listens on.
func freePorts(tb testing.TB, n int) []int {
	tb.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
		if err != nil {
			tb.Fatal(err)
		}
		// Held until all are known, else the same one could be given out twice.
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener's address
	}
	return ports
}
