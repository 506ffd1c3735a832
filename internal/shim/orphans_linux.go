package shim

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killOrphans kills what is left of a raider whose shim was killed: its process group and
// whoever has one of the pipes as stdin, stdout or stderr. It returns when none is left.
func killOrphans(group int, pipes []uint64) {
	want := make(map[string]bool, len(pipes))
	for _, ino := range pipes {
		want["pipe:["+strconv.FormatUint(ino, 10)+"]"] = true
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		found := false
		for _, name := range processes() {
			pid, err := strconv.Atoi(name)
			if err != nil || pid == os.Getpid() {
				continue
			}
			if orphan(name, group, want) {
				found = true
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if !found {
			return
		}
		time.Sleep(wait) //nolint:forbidigo // the kernel tells nobody of the end of other processes' children
	}
}

// orphan says whether a process is of the group or holds one of the pipes. A zombie runs
// no more and may stay for ever where nobody reaps.
func orphan(pid string, group int, pipes map[string]bool) bool {
	st, ok := readStat(pid)
	if !ok || st.state == 'Z' || st.state == 'X' {
		return false
	}
	if group > 1 && st.group == group {
		return true
	}
	for _, fd := range []string{"0", "1", "2"} {
		if to, err := os.Readlink("/proc/" + pid + "/fd/" + fd); err == nil && pipes[to] {
			return true
		}
	}
	return false
}
