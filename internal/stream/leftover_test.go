//go:build unix

package stream

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// What a killed adapter left is removed, and nothing else.
func TestSocketsOfKilledAdaptersAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	live, err := openSocket(t.Context(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer live.close()
	dir := os.TempDir()
	keep := []string{filepath.Dir(live.path)}
	for _, name := range []string{"rf-file", "other-killed", "rf-killed"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "rf-killed" {
			keep = append(keep, path)
		}
		if name == "rf-file" {
			if err := os.WriteFile(filepath.Join(path, socketName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(path, socketName), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false) // as after kill -9
		_ = l.Close()
	}
	clearSockets([]string{dir})
	for _, path := range keep {
		if _, err := os.Stat(filepath.Join(path, socketName)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "rf-killed")); !os.IsNotExist(err) {
		t.Errorf("what a killed adapter left: %v", err)
	}
}
