package port

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestTakenPortNamesItsHolder(t *testing.T) {
	t.Parallel()
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, err = Listen(t.Context(), address)
	var taken *TakenError
	if !errors.As(err, &taken) || !errors.Is(err, syscall.EADDRINUSE) || taken.Address != address || !strings.HasPrefix(err.Error(), address+" is taken by ") {
		t.Fatalf("got %v", err)
	}
	if runtime.GOOS == "linux" && (taken.PID != os.Getpid() || taken.Command == "") {
		t.Errorf("taken by %d %q, we are %d", taken.PID, taken.Command, os.Getpid())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = Listen(t.Context(), address)
	if err != nil {
		t.Fatalf("a free port: %v", err)
	}
	_ = l.Close()
	if _, err := Listen(t.Context(), "127.0.0.1:no-such-port"); err == nil || errors.As(err, &taken) {
		t.Errorf("no address: %v", err)
	}
	if text := (&TakenError{Address: "[::1]:1"}).Error(); text != "[::1]:1 is taken by another process" {
		t.Errorf("of an unknown holder: %s", text)
	}
}

// A connection to the port is no holder of it.
func TestHolderListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	_ = l.Close()
	if pid, command := holder(l.Addr().(*net.TCPAddr).Port); pid != 0 {
		t.Errorf("held by %d %s", pid, command)
	}
}
