package shim

import (
	"bytes"
	"os"
	"strconv"
)

// stat is what we read of /proc/PID/stat.
type stat struct {
	state  byte
	parent int
	group  int
}

func readStat(pid string) (stat, bool) {
	text, err := os.ReadFile("/proc/" + pid + "/stat") //nolint:gosec // a number
	if err != nil {
		return stat{}, false
	}
	// The name, in parentheses, may hold anything, also a parenthesis.
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 3 {
		return stat{}, false
	}
	parent, err1 := strconv.Atoi(string(f[1]))
	group, err2 := strconv.Atoi(string(f[2]))
	return stat{state: f[0][0], parent: parent, group: group}, err1 == nil && err2 == nil
}

// processes are the names of all processes in /proc.
func processes() []string {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // what could be read
	out := names[:0]
	for _, n := range names {
		if n[0] >= '0' && n[0] <= '9' {
			out = append(out, n)
		}
	}
	return out
}
