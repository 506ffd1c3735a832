package proof

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

var errWireDead = errors.New("the front door is gone")

// wire is a client's connection to a front door: an ACP client that knows only lines, so
// that a fault in our own packages can't hide itself, and that notes the order in which
// they come.
type wire struct {
	h      *history
	conn   net.Conn
	number int           // in h.wires
	dead   chan struct{} // closed when nothing more comes
	ended  func()

	mu      sync.Mutex // guards the rest
	lastID  int
	calls   map[int]chan reply
	turns   map[int]string // the prompts' ids
	open    map[string]subjects.SessionID
	loading subjects.SessionID
	change  chan struct{} // closed and renewed when a turn was answered
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *wireError      `json:"error"`
}

type wireError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Raiderfleet struct {
			Outcome subjects.RunState `json:"outcome"`
		} `json:"raiderfleet"`
	} `json:"data"`
}

func (e *wireError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

func dialWire(ctx context.Context, h *history, address string) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w := &wire{
		h: h, conn: conn, dead: make(chan struct{}), calls: map[int]chan reply{}, turns: map[int]string{},
		open: map[string]subjects.SessionID{}, change: make(chan struct{}),
	}
	h.mu.Lock()
	w.number = len(h.wires)
	h.wires = append(h.wires, nil)
	h.mu.Unlock()
	var reading sync.WaitGroup
	reading.Go(w.read)
	w.ended = func() { _ = conn.Close(); reading.Wait() }
	if _, err := w.call(ctx, "initialize", `{"protocolVersion":1}`); err != nil {
		w.ended()
		return nil, err
	}
	return w, nil
}

func (w *wire) note(s seen) {
	s.at = shim.Now()
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.h.wires[w.number] = append(w.h.wires[w.number], s)
}

func (w *wire) problem(format string, args ...any) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.h.problems = append(w.h.problems, fmt.Sprintf("connection %d: ", w.number)+fmt.Sprintf(format, args...))
}

func (w *wire) write(format string, args ...any) error {
	_, err := fmt.Fprintf(w.conn, format+"\n", args...)
	return err
}

// call sends a request and waits for its answer.
func (w *wire) call(ctx context.Context, method, params string) (json.RawMessage, error) {
	w.mu.Lock()
	w.lastID++
	id, answered := w.lastID, make(chan reply, 1)
	w.calls[id] = answered
	w.mu.Unlock()
	if err := w.write(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params); err != nil {
		return nil, errWireDead
	}
	select {
	case r := <-answered:
		if r.Error != nil {
			return nil, r.Error
		}
		return r.Result, nil
	case <-w.dead:
		return nil, errWireDead
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// prompt sends a prompt; its answer goes into the history. It returns the request's id.
func (w *wire) prompt(p *prompt, text string) (int, error) {
	w.h.sent(p)
	w.mu.Lock()
	w.lastID++
	id := w.lastID
	w.turns[id] = p.tag
	w.open[p.tag] = p.session
	w.mu.Unlock()
	w.note(seen{kind: sawSent, session: p.session, tag: p.tag})
	return id, w.write(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}}`, id, p.session, text)
}

// load loads a session and notes what is shown. whole are the turns that it has to show.
func (w *wire) load(ctx context.Context, s subjects.SessionID, cwd string, whole []string) error {
	w.note(seen{kind: sawLoad, session: s, whole: whole})
	w.mu.Lock()
	w.loading = s // noted by the reader, at its place among the updates
	w.mu.Unlock()
	_, err := w.call(ctx, "session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, s, cwd))
	return err
}

// turnsOpen are the prompts that wait for an answer, and a channel that is closed when
// one has come.
func (w *wire) turnsOpen() ([]string, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var tags []string
	for tag := range w.open {
		tags = append(tags, tag)
	}
	return tags, w.change
}

func (w *wire) read() {
	defer close(w.dead)
	in := bufio.NewReaderSize(w.conn, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		w.line(line)
	}
}

func (w *wire) line(line []byte) {
	var m struct {
		ID     *int   `json:"id"`
		Method string `json:"method"`
		reply
		Params struct {
			Session subjects.SessionID `json:"sessionId"`
			Update  struct {
				Kind    string `json:"sessionUpdate"`
				Content struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"update"`
		} `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		w.problem("%v in %.200q", err, line)
		return
	}
	switch u := m.Params.Update; {
	case m.Method == "session/update" && u.Kind == "agent_message_chunk":
		chunks, ok := parseChunks(u.Content.Text)
		if !ok {
			w.problem("an update that no raider sent: %.200q", u.Content.Text)
			return
		}
		for _, s := range chunks {
			s.session = m.Params.Session
			w.note(s)
		}
	case m.Method == "session/update" && u.Kind == "user_message_chunk":
		if words := strings.Fields(u.Content.Text); len(words) > 1 {
			w.note(seen{kind: sawUser, session: m.Params.Session, tag: words[1]})
		}
	case m.Method == "session/update" && u.Kind == "agent_thought_chunk":
		w.problem("a part of the conversation is said to be missing: %.200q", u.Content.Text)
	case m.Method == "" && m.ID != nil:
		w.answer(*m.ID, m.reply)
	}
}

func (w *wire) answer(id int, r reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tag, ok := w.turns[id]; ok {
		session := w.open[tag]
		delete(w.turns, id)
		delete(w.open, tag)
		w.note(seen{kind: sawAnswer, session: session, tag: tag})
		w.h.answered(tag, answerOf(r))
		close(w.change)
		w.change = make(chan struct{})
		return
	}
	answered, ok := w.calls[id]
	if !ok {
		w.problem("an answer to no request: id %d", id)
		return
	}
	delete(w.calls, id)
	if w.loading != "" {
		if r.Error == nil {
			var result struct {
				Meta map[string]bool `json:"_meta"`
			}
			_ = json.Unmarshal(r.Result, &result)
			w.note(seen{kind: sawLoaded, session: w.loading, incomplete: result.Meta["raiderfleet/incomplete"]})
		}
		w.loading = ""
	}
	answered <- r
}

// answerOf says which outcome a response tells.
func answerOf(r reply) answer {
	if e := r.Error; e != nil {
		if e.Code == codeCancelled {
			return answer{state: subjects.RunCancelled}
		}
		return answer{state: e.Data.Raiderfleet.Outcome, text: e.Error()}
	}
	var result struct {
		StopReason string `json:"stopReason"`
	}
	_ = json.Unmarshal(r.Result, &result)
	if result.StopReason == "cancelled" {
		return answer{state: subjects.RunCancelled}
	}
	return answer{state: subjects.RunCompleted, text: result.StopReason}
}

// codeCancelled answers a request after $/cancel_request.
const codeCancelled = -32800

// parseChunks reads what the raider sends: <tag> <pid> <n> <last|-> <size> [padding].
// A transcript has the chunks of one message in one.
func parseChunks(text string) (all []seen, ok bool) {
	w := strings.Fields(text)
	for len(w) > 0 {
		if len(w) < 5 {
			return nil, false
		}
		pid, err1 := strconv.Atoi(w[1])
		n, err2 := strconv.Atoi(w[2])
		size, err3 := strconv.Atoi(w[4])
		if errors.Join(err1, err2, err3) != nil {
			return nil, false
		}
		all = append(all, seen{kind: sawUpdate, tag: w[0], pid: pid, n: n, last: w[3] == "last"})
		w = w[5:]
		if size > 0 {
			if len(w) == 0 || len(w[0]) != size || strings.Trim(w[0], "x") != "" {
				return nil, false
			}
			w = w[1:]
		}
	}
	return all, len(all) > 0
}
