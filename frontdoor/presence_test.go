package frontdoor

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

func TestPresence(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	node := func(want subjects.NodeState) func() string {
		return func() string {
			var n subjects.Node
			_, err := o.b.GetJSON(t.Context(), o.f.NodesBucket(), subjects.NodeKey(f.Instance()), &n)
			if err == nil && n.Role == subjects.RoleFrontDoor && n.State == want && n.Instance == f.Instance() {
				return ""
			}
			return fmt.Sprintf("%+v, %v", n, err)
		}
	}
	eventually(t, node(subjects.NodeUp))
	natstest.WantService(t, o.b, "raiderfleet-frontdoor", "1.2.3", map[string]string{"fleet": string(o.f), "instance": string(f.Instance())})
	cancel()
	running.Wait()
	eventually(t, node(subjects.NodeGoodbye))
	natstest.WantNoService(t, o.b, "raiderfleet-frontdoor")
}

func TestServeTCP(t *testing.T) {
	t.Parallel()
	f, o := setup(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	o.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.ServeTCP(ctx, l); err != nil {
			t.Errorf("ServeTCP: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	send := func(line string) (net.Conn, *bufio.Reader) {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		o.must(err)
		_, err = conn.Write([]byte(line + "\n"))
		o.must(err)
		r := bufio.NewReader(conn)
		text, err := r.ReadString('\n')
		o.must(err)
		if want := `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1`; len(text) < len(want) || text[:len(want)] != want {
			t.Errorf("answered %s", text)
		}
		return conn, r
	}
	initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`
	gone, _ := send(initialize)
	stays, r := send(initialize)
	if n := f.Connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
	o.must(gone.Close())
	eventually(t, func() string {
		if n := f.Connections(); n != 1 {
			return fmt.Sprintf("%d connections", n)
		}
		return ""
	})
	cancel()
	if _, err := r.ReadString('\n'); err == nil {
		t.Error("the connection is not closed")
	}
	o.must(stays.Close())
	running.Wait()
	if f.Busy() {
		t.Error("still busy")
	}
}
