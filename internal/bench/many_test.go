package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// BenchmarkManySessions measures turns a second over 256 warm sessions, and what one
// session costs: in this process, which holds the server, the worker, the front door and
// the client's end, and in the shim and raider processes. 32 sessions with -short.
func BenchmarkManySessions(b *testing.B) {
	sessions := 256
	if testing.Short() {
		sessions = 32
	}
	f := startFleet(b, sessions+1, sessions+1)
	clients := make([]*agent, 4)
	for i := range clients {
		clients[i] = f.agent(b)
	}
	clients[0].turn(clients[0].session(), "echo warm")
	before := heap()
	talks := make([]talk, sessions)
	for i := range talks {
		talks[i].agent = clients[i%len(clients)]
		talks[i].session = talks[i].agent.session()
	}
	all(b, talks, "echo warm")
	inProcess := float64(heap()-before) / float64(len(talks))
	shims, raiders := children(b)

	var took time.Duration
	turns := 0
	for b.Loop() {
		took += all(b, talks, "echo x")
		turns += len(talks)
	}
	b.ReportMetric(float64(turns)/took.Seconds(), "turns/s")
	b.ReportMetric(inProcess/1024, "heap-KiB/session")
	b.ReportMetric(shims/1024, "shim-KiB")
	b.ReportMetric(raiders/1024, "raider-KiB")
}

// heap is what is alive in this process.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// children is the mean memory in bytes that a shim and a raider have for themselves;
// what they share with this binary is not theirs. Zero where there is no /proc.
func children(b *testing.B) (shim, raider float64) {
	b.Helper()
	var shims, raiders []float64
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(line, []byte(exe+"\x00")) {
			continue
		}
		args := bytes.Split(line, []byte{0})
		private := privateBytes(filepath.Join(filepath.Dir(path), "smaps_rollup"))
		switch {
		case private == 0 || len(args) < 2:
		case string(args[1]) == "shim":
			shims = append(shims, private)
		case string(args[1]) == "demo":
			raiders = append(raiders, private)
		}
	}
	return mean(shims), mean(raiders)
}

// privateBytes sums the private lines of a smaps_rollup; 0 when it can't be read.
func privateBytes(path string) float64 {
	body, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	sum := 0.0
	for line := range bytes.Lines(body) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && bytes.HasPrefix(fields[0], []byte("Private_")) {
			kib, err := strconv.ParseFloat(string(fields[1]), 64)
			if err == nil {
				sum += kib * 1024
			}
		}
	}
	return sum
}

func mean(of []float64) float64 {
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	if len(of) == 0 {
		return 0
	}
	return sum / float64(len(of))
}
