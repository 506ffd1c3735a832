//go:build unix

package shim_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"raiderfleet/internal/shim"
)

func background() context.Context { return context.Background() }

// long is a deadline that no test reaches.
func long() shim.Boottime { return shim.After(10 * time.Minute) }

func spec(args ...string) shim.Spec {
	return shim.Spec{Exe: self("shim"), Command: self(append([]string{"raider"}, args...)...), Deadline: long()}
}

func mustStart(tb testing.TB, s shim.Spec) *shim.Process {
	tb.Helper()
	p, err := shim.Start(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	tidy(tb, p)
	return p
}

func tidy(tb testing.TB, p *shim.Process) {
	tb.Helper()
	tb.Cleanup(func() {
		p.Kill()
		within(tb, p.Gone(), "gone")
		_ = p.Stdout().Close()
		_ = p.Stderr().Close()
	})
}

func within(tb testing.TB, ch <-chan struct{}, what string) {
	tb.Helper()
	select {
	case <-ch:
	case <-time.After(20 * time.Second):
		tb.Fatalf("not %s after 20 s", what)
	}
}

// until polls until state returns "".
func until(t *testing.T, state func() string) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		s := state()
		if s == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(s)
		}
		<-tick.C
	}
}

func line(tb testing.TB, r io.Reader) string {
	tb.Helper()
	s, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		tb.Fatalf("read a line: %q, %v", s, err)
	}
	return strings.TrimSpace(s)
}

func output(tb testing.TB, s shim.Spec) string {
	tb.Helper()
	p := mustStart(tb, s)
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		tb.Fatal(err)
	}
	within(tb, p.Gone(), "gone")
	return strings.TrimSpace(string(out))
}

func TestStdioAndEOF(t *testing.T) {
	t.Parallel()
	p := mustStart(t, spec("cat"))
	var fed sync.WaitGroup
	fed.Go(func() {
		if _, err := io.WriteString(p.Stdin(), strings.Repeat("x", 1<<18)+"\n"); err != nil {
			t.Error(err)
		}
		if err := p.Stdin().Close(); err != nil {
			t.Error(err)
		}
	})
	defer fed.Wait()
	out, err := io.ReadAll(p.Stdout())
	if err != nil || len(out) != len("ready\n")+1<<18+1 {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
	within(t, p.Gone(), "gone")
	if got := p.Exit().String(); got != "exit code 0" {
		t.Error(got)
	}
	p = mustStart(t, spec("stdio"))
	if got := line(t, p.Stderr()); got != "to stderr" {
		t.Error(got)
	}
	if got := line(t, p.Stdout()); got != "to stdout" {
		t.Error(got)
	}
}

func TestExitCodesAndSignals(t *testing.T) {
	t.Parallel()
	p := mustStart(t, spec("exit", "3"))
	within(t, p.Exited(), "exited")
	if got := p.Exit(); got.String() != "exit code 3" || got.Code != 3 || got.Signal != 0 {
		t.Errorf("%+v", got)
	}
	for sig, want := range map[syscall.Signal]string{
		syscall.SIGTERM: "killed by signal 15 (terminated)",
		syscall.SIGKILL: "killed by signal 9 (killed)",
		syscall.SIGINT:  "killed by signal 2 (interrupt)",
		syscall.SIGHUP:  "killed by signal 1 (hangup)",
	} {
		p := mustStart(t, shim.Spec{Exe: self("shim"), Command: []string{"sleep", "1000"}, Deadline: long()})
		if err := p.Signal(sig); err != nil {
			t.Fatal(err)
		}
		within(t, p.Gone(), "gone")
		if got := p.Exit().String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	p = mustStart(t, spec("interrupted"))
	out := bufio.NewReader(p.Stdout())
	if got := line(t, out); got != "ready" {
		t.Fatal(got)
	}
	if err := p.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got, _ := out.ReadString('\n'); got != "interrupted\n" {
		t.Errorf("%q", got)
	}
	within(t, p.Gone(), "gone")
	if err := p.SetDeadline(long()); err == nil {
		t.Error("a deadline was moved after the end")
	}
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("#!/no/such/interpreter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context //nolint:containedctx // a case of the table
		spec shim.Spec
		want string
	}{
		{spec: shim.Spec{Deadline: long()}, want: "no command"},
		{spec: shim.Spec{Command: []string{"no-such-agent"}, Deadline: long()}, want: "command no-such-agent: not found in PATH"},
		{spec: shim.Spec{Command: []string{"./x"}, Dir: dir, Deadline: long()}, want: "command ./x: no such file"},
		{spec: shim.Spec{Command: []string{file}, Deadline: long()}, want: "is not executable"},
		{spec: shim.Spec{Command: []string{dir}, Deadline: long()}, want: "is a directory"},
		{spec: shim.Spec{Command: []string{script}, Deadline: long()}, want: "no such file or directory"},
		{spec: shim.Spec{Command: []string{"true"}, Dir: dir + "/none", Deadline: long()}, want: "directory " + dir + "/none: no such file"},
		{spec: shim.Spec{Command: []string{"true"}, Dir: file, Deadline: long()}, want: "not a directory"},
		{spec: shim.Spec{Command: []string{"true"}}, want: "deadline has passed"},
		{spec: shim.Spec{Command: []string{"true"}, Deadline: shim.Now()}, want: "deadline has passed"},
		{spec: shim.Spec{Command: []string{"true", "a\x00b"}, Deadline: long()}, want: "NUL"},
		{spec: shim.Spec{Command: []string{"true"}, Deadline: long()}, ctx: ctx, want: "canceled"},
		{spec: shim.Spec{Exe: []string{"/no/such/shim"}, Command: []string{"true"}, Deadline: long()}, want: "/no/such/shim"},
		{spec: shim.Spec{Exe: []string{"true"}, Command: []string{"true"}, Deadline: long()}, want: "the shim ended"},
	} {
		if c.spec.Exe == nil {
			c.spec.Exe = self("shim")
		}
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		_, err := shim.Start(c.ctx, c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.spec.Command, err, c.want)
		}
	}
}

func TestWhatTheRaiderGets(t *testing.T) {
	t.Parallel()
	s := spec("env")
	s.Env = []string{"A=1", "B=x y"}
	if got := output(t, s); got != "A=1\nB=x y" {
		t.Errorf("environment %q", got)
	}
	s = spec("dir")
	s.Dir = t.TempDir()
	if got := output(t, s); got != s.Dir {
		t.Errorf("directory %q", got)
	}
	if got := output(t, spec("blocking")); got != "0 false\n1 false\n2 false" {
		t.Errorf("non-blocking: %q", got)
	}
}

func TestStopEscalates(t *testing.T) {
	t.Parallel()
	const grace = 200 * time.Millisecond
	p := mustStart(t, spec("cat")) // ends on EOF
	p.Stop(time.Minute)
	if got := p.Exit().String(); got != "exit code 0" {
		t.Error(got)
	}
	p = mustStart(t, spec("sleep")) // ends on TERM
	line(t, p.Stdout())
	p.Stop(grace)
	if got := p.Exit().Signal; got != syscall.SIGTERM {
		t.Error(got)
	}
	p = mustStart(t, spec("stubborn"))
	line(t, p.Stdout())
	begin := time.Now()
	p.Stop(grace)
	if took := time.Since(begin); took < 2*grace {
		t.Errorf("killed after %v", took)
	}
	if got := p.Exit(); got.Signal != syscall.SIGKILL || got.Deadline {
		t.Error(got)
	}
	p.Kill() // once more does no harm
}
