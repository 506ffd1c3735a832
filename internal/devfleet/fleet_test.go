package devfleet

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raiderfleet/frontdoor"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

const patience = time.Minute

func options(t *testing.T) Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Dir: t.TempDir(), Layout: subjects.Layout{Fleet: "default", MaxBacklog: 10, Replicas: 3}, AckWait: 2 * time.Second,
		FrontDoor: frontdoor.Config{Name: "fd", Raiders: []frontdoor.Raider{{Name: "demo"}}},
		Worker: func(dir string) (worker.Config, error) {
			return worker.Config{
				Name: "w1", StateDir: dir, Exe: []string{exe, "shim"},
				Raiders: []worker.Raider{{Name: "demo", Command: []string{"false"}}},
			}, nil
		},
		Listen: "127.0.0.1:0",
	}
}

// running is a fleet of a test.
type running struct {
	Serving
	stop  context.CancelFunc
	ended chan error
}

func run(t *testing.T, o Options) *running {
	t.Helper()
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{stop: cancel, ended: make(chan error, 1)}
	serving := make(chan Serving, 1)
	go func() {
		r.ended <- f.Run(ctx, func(s Serving) error { serving <- s; return nil }, nil)
		close(r.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended //nolint:errcheck // only that it has ended
	})
	select {
	case r.Serving = <-serving:
	case err := <-r.ended:
		t.Fatalf("it did not start: %v", err)
	case <-time.After(patience):
		t.Fatal("it did not start")
	}
	return r
}

func TestOnlyOneFleetInADirectory(t *testing.T) {
	t.Parallel()
	o := options(t)
	first := run(t, o)
	again, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Run(t.Context(), nil, nil); !errors.Is(err, ErrRunning) {
		t.Errorf("a second fleet: %v", err)
	}
	j, err := Join(t.Context(), JoinOptions{Dir: o.Dir})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Bus.Close()
	if j.Ready.ID != first.Ready.ID || j.Bus.AckWait() != o.AckWait {
		t.Errorf("joined %+v with ack_wait %v", j.Ready, j.Bus.AckWait())
	}
	first.stop()
	if err := <-first.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := Join(t.Context(), JoinOptions{Dir: o.Dir}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("joined a fleet that has ended: %v", err)
	}
	run(t, o) // the directory is free again
}

func TestLeavesWhenNobodyUsesIt(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.LeaveAfter = 300 * time.Millisecond
	r := run(t, o)
	j, err := Join(t.Context(), JoinOptions{Dir: o.Dir})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		t.Fatalf("it left (%v) though somebody was connected", err)
	case <-time.After(2 * o.LeaveAfter):
	}
	j.Bus.Close()
	conn, err := net.Dial("tcp", r.Ready.ACP)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		t.Fatalf("it left (%v) though a client was connected", err)
	case <-time.After(2 * o.LeaveAfter):
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it did not leave")
	}
}

func TestThrowAway(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Dir, o.Listen = "", ""
	r := run(t, o)
	if r.Ready.ACP != "" || r.Ready.StateDir != "" || r.Ready.Credentials != "" {
		t.Errorf("it can be joined: %+v", r.Ready)
	}
}

func TestAnyPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the test's end does it as well
	o := options(t)
	o.Listen, o.AnyPort = l.Addr().String(), true
	if r := run(t, o); r.Ready.ACP == o.Listen || r.Ready.ACP == "" {
		t.Errorf("it listens on %s", r.Ready.ACP)
	}
	o = options(t)
	o.Listen = l.Addr().String()
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "listen for ACP") {
		t.Errorf("a port that is taken: %v", err)
	}
}

func TestPartThatFailsEndsTheFleet(t *testing.T) {
	t.Parallel()
	o := options(t)
	broken := errors.New("no place")
	o.Worker = func(string) (worker.Config, error) { return worker.Config{}, broken }
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(t.Context(), nil, nil); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	f, err = New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(t.Context(), func(Serving) error { return broken }, nil); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestWhatAKilledFleetLeavesIsNoFleet(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	other := run(t, options(t)) // a server with another password on the port
	for _, url := range []string{"nats://" + free, other.Ready.NATS} {
		dir := t.TempDir()
		r := Ready{PID: 1, ID: "x", NATS: url, Credentials: filepath.Join(dir, credentialsName), Fleet: "default", AckWait: "2s"}
		if err := WriteReady(filepath.Join(dir, readyName), r); err != nil {
			t.Fatal(err)
		}
		if _, err := Join(t.Context(), JoinOptions{Dir: dir}); !errors.Is(err, ErrNotRunning) {
			t.Errorf("without credentials: %v", err)
		}
		if err := writeJSON(r.Credentials, Credentials{User: "u", Password: "p"}); err != nil {
			t.Fatal(err)
		}
		if _, err := Join(t.Context(), JoinOptions{Dir: dir}); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestReadyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), readyName)
	if _, err := ReadReady(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	mine := Ready{PID: 1, ID: "a"}
	if err := WriteReady(path, mine); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	later := Ready{PID: 1, ID: "b"}
	if err := WriteReady(path, later); err != nil {
		t.Fatal(err)
	}
	// The file of one that was started later stays.
	if err := RemoveReady(path, mine); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadReady(path); err != nil || got.ID != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	for range 2 {
		if err := RemoveReady(path, later); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := WriteReady(filepath.Join(path, "x"), mine); err == nil {
		t.Error("written into a directory that is not there")
	}
}

func TestReadCredentials(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.json")
	for _, tt := range []struct {
		body string
		ok   bool
	}{
		{`{"user":"u","password":"p"}`, true}, {`{"user":"u"}`, false}, {`{}`, false}, {`nonsense`, false},
	} {
		if err := os.WriteFile(path, []byte(tt.body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadCredentials(path); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.body, err)
		}
	}
}

func TestDetachedSaysWhyItDoesNotServe(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		argv []string
		want string
	}{
		{"its own words", []string{exe, "say", "the disk is full"}, "the disk is full"},
		{"no word", []string{exe, "silent"}, LogName},
		{"no program", []string{"/no/such/program"}, "/no/such/program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := JoinOrStart(t.Context(), JoinOptions{Dir: t.TempDir()}, Detached{Command: tt.argv})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
	t.Run("another one has the directory and does not serve", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := JoinOrStart(ctx, JoinOptions{Dir: t.TempDir()}, Detached{Command: []string{exe, "running"}})
		if err == nil || !strings.Contains(err.Error(), "does not serve") && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Dir = "relative"
	if _, err := New(o); err == nil {
		t.Error("a relative directory was taken")
	}
	o = options(t)
	o.Worker = nil
	if _, err := New(o); err == nil {
		t.Error("a fleet without a worker was made")
	}
}

func TestLongLogBeginsAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), LogName)
	for _, tt := range []struct{ size, want int64 }{{10, 10}, {maxLog + 1, 0}} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, tt.size); err != nil {
			t.Fatal(err)
		}
		f, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil || info.Size() != tt.want {
			t.Errorf("of %d bytes are left %d, %v", tt.size, info.Size(), err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
