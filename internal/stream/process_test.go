//go:build unix

package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"raiderfleet/internal/rpc"
	"raiderfleet/internal/shim"
)

// adapter starts the adapter as a process of its own.
func adapter(t *testing.T, config Config) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	t.Helper()
	args, err := config.Args()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], append([]string{"stream-raider"}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, in, bufio.NewReader(out)
}

// untilLine reads lines until one holds a text.
func untilLine(t *testing.T, r *bufio.Reader, text string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no line with %s: %v", text, err)
		}
		if strings.Contains(line, text) {
			return line
		}
	}
}

// As the worker escalates: signals to the adapter reach the command while a run is on, and
// end the adapter itself otherwise.
func TestSignalsToTheProcess(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd, in, out := adapter(t, shell())
		send := func(line string) {
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`)
		send(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`)
		var r struct {
			Result struct {
				SessionID string `json:"sessionId"`
			} `json:"result"`
		}
		if err := json.Unmarshal([]byte(untilLine(t, out, `"id":2`)), &r); err != nil {
			t.Fatal(err)
		}
		send(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":` + string(promptParams(r.Result.SessionID, on("", "exec sleep 1000"))) + `}`)
		untilLine(t, out, `"on"`)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		untilLine(t, out, `killed by signal`)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(sig) {
			t.Errorf("%v: %v", sig, cmd.ProcessState)
		}
	}
}

// Under a shim, as the worker starts it: signals come through, and a kill leaves nothing.
func TestUnderAShim(t *testing.T) {
	t.Parallel()
	args, err := shell().Args()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := shim.Start(t.Context(), shim.Spec{
		Command: append([]string{os.Args[0], "stream-raider"}, args...), Env: os.Environ(), Deadline: shim.Now() + shim.Boottime(patience),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, notes: make(chan note, 100), asked: make(chan json.RawMessage, 1)}
	c.conn = rpc.NewConn(sp.Stdout(), sp.Stdin(), c, rpc.Options{})
	var readers sync.WaitGroup
	readers.Go(func() { _ = c.conn.Run(context.Background()) })
	readers.Go(func() { _, _ = io.Copy(io.Discard, sp.Stderr()) })
	defer readers.Wait()
	defer func() { _ = c.conn.Close() }()
	defer sp.Kill()
	c.call("initialize", `{"protocolVersion":1}`)
	session := c.open("/")

	ended := c.begin(session, on("", "exec sleep 1000"))
	c.untilSaid("on")
	if err := sp.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if how := wait(t, ended); !strings.Contains(how, "killed by signal 2") {
		t.Fatal(how)
	}

	ended = c.begin(session, `trap '' INT TERM
printf '{"version":1,"type":"message","content":"%s"}\n' $$
while :; do sleep 1000 & wait; done`)
	pid, err := strconv.Atoi(spoken([]note{wait(t, c.notes)}))
	if err != nil {
		t.Fatal(err)
	}
	sp.Kill()
	wait(t, sp.Gone())
	if running(pid) {
		t.Error("the command has outlived its shim")
	}
	wait(t, ended)
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--config", "{"}, {"--config", "{}", "more"}, {"--what"}} {
		if code := Main(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard); code != 2 {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
	if code := Main(t.Context(), nil, strings.NewReader(""), io.Discard, io.Discard); code != 0 {
		t.Errorf("end of input: exit code %d", code)
	}
}
