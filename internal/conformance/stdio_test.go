package conformance

import (
	"io"
	"strings"
	"testing"
	"time"

	"raiderfleet/frontdoor"
)

// stdio is the client's end of an agent that is spoken to over stdin and stdout: its
// input can end while its output goes on.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// serveStdio serves a client on stdio; done gets what Serve returns.
func (f *fleet) serveStdio(t *testing.T, grace time.Duration) (c *client, done <-chan error) {
	t.Helper()
	d := f.doors[0]
	stdin, toStdin := io.Pipe()
	fromStdout, stdout := io.Pipe()
	ended := make(chan error, 1)
	d.conns.Go(func() {
		ended <- d.door.Serve(d.ctx, stdin, stdout, frontdoor.ConnOptions{EOFGrace: grace})
		_ = stdout.Close() // Serve may have closed it
	})
	return newClient(t, stdio{fromStdout, toStdin}), ended
}

// What was read before the end of the input is answered; a turn gets its grace.
func TestEndOfInput(t *testing.T) {
	t.Parallel()
	f := startFleet(t, nil)
	for _, tc := range []struct {
		name, prompt, reason string
		grace                time.Duration
	}{
		{"a turn in its grace", "echo the last words", "end_turn", patience},
		{"a turn that takes too long", "sleep 60", "cancelled", 200 * time.Millisecond},
		{"as long as it takes", "sleep 1", "end_turn", -1},
	} {
		c, done := f.serveStdio(t, tc.grace)
		c.initialize()
		session := c.session("")
		// No newline: the end of the input ends the line.
		c.write(strings.TrimSuffix(c.line(`"last"`, "session/prompt", promptParams(session, tc.prompt)), "\n"))
		if err := c.conn.Close(); err != nil {
			t.Fatal(err)
		}
		wantStop(t, c.answer(`"last"`), tc.reason)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
