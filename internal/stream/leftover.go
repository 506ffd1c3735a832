//go:build unix

package stream

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// socketDirs are where the directories of permission sockets are made.
func socketDirs() []string { return []string{os.TempDir(), "/tmp"} }

// clearSockets removes the permission sockets of adapters that were killed: nobody listens
// there any more. Those of other users and of adapters that run are left alone.
func clearSockets(dirs []string) {
	for _, in := range dirs {
		found, err := filepath.Glob(filepath.Join(in, socketPrefix+"*", socketName))
		if err != nil {
			continue
		}
		for _, path := range found {
			info, err := os.Lstat(path)
			if err != nil || info.Mode().Type() != os.ModeSocket {
				continue
			}
			if c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}); err == nil {
				_ = c.Close()
			} else if errors.Is(err, syscall.ECONNREFUSED) {
				_ = os.RemoveAll(filepath.Dir(path)) // another one may have been faster
			}
		}
	}
}
