package port

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder finds the process that listens at a port; 0 when it is another user's, or gone.
func holder(port int) (pid int, command string) {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table) //nolint:gosec // one of two paths
		if err != nil {
			continue
		}
		for _, inode := range listening(string(text), port) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return 0, ""
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, ""
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || !sockets[target] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		if pid, err = strconv.Atoi(filepath.Base(dir)); err != nil {
			continue
		}
		// Not its arguments: they may hold secrets.
		comm, err := os.ReadFile(filepath.Join(dir, "comm")) //nolint:gosec // under /proc
		if err != nil {
			continue // it has just ended
		}
		return pid, string(bytes.TrimSpace(comm))
	}
	return 0, ""
}

// listening are the inodes of the sockets that listen at a port, in the kernel's table:
// number, local address, remote address, state, …, the inode as the tenth field.
func listening(table string, port int) []string {
	const listens = "0A"
	var out []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listens {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
			out = append(out, f[9])
		}
	}
	return out
}
