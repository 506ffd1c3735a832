package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what must come; only a failure takes it.
const patience = time.Minute

// client speaks ACP line by line and keeps all it got. Every line is validated when
// it comes. Its methods are safe for many goroutines.
type client struct {
	tb    testing.TB
	conn  io.ReadWriteCloser
	ended chan struct{} // closed when nothing more is read

	writing sync.Mutex // a line goes out whole

	mu      sync.Mutex // guards the rest
	schemas []*protocolSchema
	lastID  int
	cwds    map[string]string   // of the sessions that session made
	asked   map[string][]string // methods of open requests by id
	got     []message
	answers map[string][]int // indexes in got of the responses, by id
	more    chan struct{}    // closed when got grows
}

// newClient reads conn until it ends; both end with the test.
func newClient(tb testing.TB, conn io.ReadWriteCloser) *client {
	tb.Helper()
	all, err := schemas()
	if err != nil {
		tb.Fatal(err)
	}
	c := &client{
		tb: tb, conn: conn, schemas: all, ended: make(chan struct{}),
		asked: map[string][]string{}, cwds: map[string]string{}, answers: map[string][]int{}, more: make(chan struct{}),
	}
	go c.read()
	tb.Cleanup(c.close)
	return c
}

// close ends the connection as a client does that goes away.
func (c *client) close() {
	_ = c.conn.Close() // closed twice in some tests
	<-c.ended
}

func (c *client) read() {
	defer close(c.ended)
	in := bufio.NewReaderSize(c.conn, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, net.ErrClosed) {
				c.tb.Errorf("the connection ended in the middle of a line: %.200s", line)
			}
			return
		}
		c.take(line)
	}
}

func (c *client) take(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		c.tb.Errorf("not JSON: %v: %.200s", err, line)
		return
	}
	if err := m.shape(); err != nil {
		c.tb.Errorf("%v: %.200s", err, line)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := ""
	if id := string(m.ID); m.Method == "" && len(c.asked[id]) > 0 {
		asked = c.asked[id][0]
		c.asked[id] = c.asked[id][1:]
	}
	for _, s := range c.schemas {
		if err := s.check(m, asked); err != nil {
			c.tb.Errorf("answer to %q against %s: %v: %.400s", asked, s.name, err, line)
		}
	}
	if m.Method == "" {
		c.answers[string(m.ID)] = append(c.answers[string(m.ID)], len(c.got))
	}
	c.got = append(c.got, m)
	close(c.more)
	c.more = make(chan struct{})
}

// write sends raw text as it is.
func (c *client) write(raw string) {
	c.tb.Helper()
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := io.WriteString(c.conn, raw); err != nil {
		c.tb.Errorf("write: %v", err)
	}
}

// line renders a request or, with an empty id, a notification, and notes the request.
func (c *client) line(id, method, params string) string {
	if id == "" {
		return `{"jsonrpc":"2.0","method":"` + method + `","params":` + params + "}\n"
	}
	c.mu.Lock()
	c.asked[id] = append(c.asked[id], method)
	c.mu.Unlock()
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + "}\n"
}

// start sends a request under a new id, which it returns.
func (c *client) start(method, params string) string {
	c.tb.Helper()
	c.mu.Lock()
	c.lastID++
	id := strconv.Itoa(c.lastID)
	c.mu.Unlock()
	c.write(c.line(id, method, params))
	return id
}

func (c *client) notify(method, params string) {
	c.tb.Helper()
	c.write(c.line("", method, params))
}

// call is start and answer.
func (c *client) call(method, params string) message {
	c.tb.Helper()
	return c.answer(c.start(method, params))
}

// answer waits for the first response with that id.
func (c *client) answer(id string) message {
	c.tb.Helper()
	m, _ := c.nthAnswer(id, 0)
	return m
}

// nthAnswer waits for the response n, counted from 0, with that id, and says which
// line it was.
func (c *client) nthAnswer(id string, n int) (message, int) {
	c.tb.Helper()
	var at int
	c.until("response "+id, func() bool {
		if len(c.answers[id]) <= n {
			return false
		}
		at = c.answers[id][n]
		return true
	})
	return c.received(at, at+1)[0], at
}

// answered is how many responses with that id have come.
func (c *client) answered(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answers[id])
}

// await waits for the first message from line `from` on that f accepts, and says which
// line it was.
func (c *client) await(from int, what string, f func(message) bool) (message, int) {
	c.tb.Helper()
	at := from
	c.until(what, func() bool {
		for ; at < len(c.got); at++ {
			if f(c.got[at]) {
				return true
			}
		}
		return false
	})
	return c.received(at, at+1)[0], at
}

// until waits until f, called with the lock held, is true.
func (c *client) until(what string, f func() bool) {
	c.tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		ok, more := f(), c.more
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-c.ended:
			c.mu.Lock()
			ok := f()
			c.mu.Unlock()
			if !ok {
				c.tb.Fatalf("the connection ended before %s came; last lines:\n%s", what, c.tail())
			}
			return
		case <-deadline.C:
			c.tb.Fatalf("%s did not come; last lines:\n%s", what, c.tail())
		}
	}
}

func (c *client) tail() string {
	all := c.received(0, -1)
	var b strings.Builder
	for _, m := range all[max(0, len(all)-10):] {
		fmt.Fprintf(&b, "  id %s %s params %.200s result %.200s error %.300s\n", m.ID, m.Method, m.Params, m.Result, m.Error)
	}
	return b.String()
}

// received is the messages from line `from` up to, without, line `to`; -1 is all.
func (c *client) received(from, to int) []message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to < 0 {
		to = len(c.got)
	}
	return slices.Clone(c.got[from:to])
}

// count is how many lines have come.
func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// initialize opens the protocol.
func (c *client) initialize() message {
	c.tb.Helper()
	m := c.call("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	if m.Error != nil {
		c.tb.Fatalf("initialize: %s", m.Error)
	}
	return m
}

// session makes a session in a directory of its own; raider may be empty.
func (c *client) session(raider string) string {
	c.tb.Helper()
	dir := c.tb.TempDir()
	params := `{"cwd":` + quoted(dir) + `,"mcpServers":[]`
	if raider != "" {
		params += `,"_meta":{"raiderfleet/raider":` + quoted(raider) + `}`
	}
	m := c.call("session/new", params+"}")
	if m.Error != nil {
		c.tb.Fatalf("session/new: %s", m.Error)
	}
	id := decode[struct {
		ID string `json:"sessionId"`
	}](m.Result).ID
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cwds[id] = dir
	return id
}

// cwd is the directory of a session that session made.
func (c *client) cwd(session string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cwds[session]
}

// prompt starts a turn and returns the request's id.
func (c *client) prompt(session, text string) string {
	c.tb.Helper()
	return c.start("session/prompt", promptParams(session, text))
}

// turn is a whole turn: its response, and all that came from its start to it.
func (c *client) turn(session, text string) (message, []message) {
	c.tb.Helper()
	from := c.count()
	m, at := c.nthAnswer(c.prompt(session, text), 0)
	return m, c.received(from, at)
}

func promptParams(session, text string) string {
	return `{"sessionId":` + quoted(session) + `,"prompt":[{"type":"text","text":` + quoted(text) + `}]}`
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// wantStop fails unless m is a response with that stop reason.
func wantStop(tb testing.TB, m message, reason string) {
	tb.Helper()
	if m.Error != nil || decode[struct {
		Reason string `json:"stopReason"`
	}](m.Result).Reason != reason {
		tb.Fatalf("got result %s error %s, want stop reason %s", m.Result, m.Error, reason)
	}
}

// wantFault fails unless m is an error with that code whose message has the text.
func wantFault(tb testing.TB, m message, code int64, text string) fault {
	tb.Helper()
	if m.Error == nil {
		tb.Fatalf("got result %s, want error %d", m.Result, code)
	}
	f := decode[fault](m.Error)
	if f.Code != code || !strings.Contains(f.Message, text) {
		tb.Fatalf("got error %s, want %d with %q in its message", m.Error, code, text)
	}
	return f
}

// wantOutcome fails unless the error says how the prompt ended.
func wantOutcome(tb testing.TB, f fault, outcome string) {
	tb.Helper()
	s := decode[story](f.Data)
	if s.Fleet == nil || s.Fleet.Outcome != outcome || s.Fleet.Prompt == "" {
		tb.Fatalf("data is %s, want data.raiderfleet with outcome %s and a prompt", f.Data, outcome)
	}
}
