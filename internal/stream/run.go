//go:build unix

package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"raiderfleet/internal/rpc"
	"raiderfleet/internal/shim"
)

const (
	// lingerGrace is how long a command may go on after run.finished, and then after
	// SIGTERM.
	lingerGrace = 5 * time.Second
	// exitSessionHeld is the exit code of the hall's raider when its session is open for
	// writing elsewhere: nothing was run.
	exitSessionHeld = 4
)

// run is one run of the command, for one prompt.
type run struct {
	agent     *agent
	conn      *rpc.Conn
	session   *session
	text      string
	prefix    string // of its tool calls
	questions atomic.Uint64

	mu   sync.Mutex // guards proc
	proc *process   // nil before it runs
}

// newRun prepares a run.
func newRun(a *agent, c *rpc.Conn, s *session, text string) *run {
	return &run{agent: a, conn: c, session: s, text: text, prefix: "run-" + rand.Text()[:10]}
}

// answer of a turn; one of the two is set.
type answer struct {
	result any
	fault  *rpc.Error
}

// turnEnd is the result of session/prompt.
type turnEnd struct {
	StopReason string `json:"stopReason"`
	Meta       *meta  `json:"_meta,omitempty"`
}

func cancelledTurn() answer { return answer{result: turnEnd{StopReason: "cancelled"}} }

func failed(text string) answer {
	return answer{fault: &rpc.Error{Code: rpc.CodeInternal, Message: text}}
}

// perform runs the command and returns when it has ended and all its updates are sent.
// The end of ctx is the turn's cancel.
func (r *run) perform(ctx context.Context) answer {
	if ctx.Err() != nil {
		return cancelledTurn()
	}
	c := r.agent.config
	argv, err := c.argv(r.agent.raiderBin, call{prompt: r.text, session: r.agent.innerOf(r.session), cwd: r.session.cwd})
	if err != nil {
		return failed(err.Error())
	}
	socket, err := openSocket(ctx, r.agent.log, r.ask)
	if err != nil {
		return failed(err.Error())
	}
	defer socket.close()
	p, err := startProcess(argv, r.session.cwd, r.environment(socket.path), r.agent.drainGrace)
	if err != nil {
		return failed(err.Error())
	}
	r.mu.Lock()
	r.proc = p
	r.mu.Unlock()
	// A turn that is cancelled already gets its signal as well.
	interrupt := context.AfterFunc(ctx, func() { p.signal(syscall.SIGINT) })
	defer interrupt()

	words := &lastWords{out: r.agent.stderr}
	finished := make(chan struct{})
	t := newTranslator(r.prefix, r.update, r.tellInner)
	var sendErr error
	var work sync.WaitGroup
	work.Go(p.wait)
	work.Go(func() { readStderr(p, words) })
	work.Go(func() { sendErr = readEvents(p, t, words, finished) })
	r.endLingering(p, finished)
	work.Wait()
	socket.close() // no question outlives the run
	if err := errors.Join(sendErr, t.end()); err != nil {
		return failed("the run's updates could not be sent")
	}
	return r.conclude(ctx, p, t, words)
}

// environment is the one of this process, with the way to the permission socket.
func (r *run) environment(socket string) []string {
	names := append([]string{envSocket}, r.agent.config.PermissionEnv...)
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(names, name) // of an outer run; the first one of a name counts
	})
	for _, name := range names {
		env = append(env, name+"="+socket)
	}
	return env
}

// readEvents takes the command's lines until its output ends. It closes finished at
// run.finished. After an error of the connection it goes on reading, so that the command
// doesn't hang on a full pipe.
func readEvents(p *process, t *translator, words *lastWords, finished chan<- struct{}) error {
	defer func() { _ = p.stdout.f.Close() }() // closed at its end
	var failure error
	ended := false
	in := newLineReader(p.stdout, maxLineBytes)
	for {
		line, whole, err := in.next()
		if err != nil {
			return failure
		}
		if ended {
			// Nothing counts any more. It is read on so that the command can end, and who
			// left its group and writes still does not hold up the turn.
			select {
			case <-p.exited:
				return failure
			default:
			}
		}
		if !whole {
			words.addStray([]byte("raiderfleet: a line of more than " + strconv.Itoa(maxLineBytes) + " bytes is left out"))
			continue
		}
		e, err := parseEvent(line)
		switch {
		case errors.Is(err, errOtherVersion):
			words.addStray([]byte("raiderfleet: an event of an unknown version is left out"))
		case err != nil:
			if len(line) > 0 {
				words.addStray(line)
			}
		case failure == nil:
			failure = t.handle(e)
		}
		if t.finished != nil && !ended {
			ended = true
			close(finished)
		}
	}
}

func readStderr(p *process, words *lastWords) {
	in := newLineReader(p.stderr, lineBuffer)
	for {
		line, _, err := in.next()
		if err != nil {
			return
		}
		words.add(line)
	}
}

// endLingering returns when the command has ended. One that goes on after run.finished, or
// when this process is to end, gets SIGTERM and then SIGKILL.
func (r *run) endLingering(p *process, finished <-chan struct{}) {
	stopping, grace := r.agent.stopping, r.agent.lingerGrace
	var timer <-chan time.Time
	next := syscall.SIGTERM
	send := func() {
		p.signal(next)
		next = syscall.SIGKILL
		timer = time.After(grace)
	}
	for {
		select {
		case <-p.exited:
			return
		case <-finished:
			finished = nil
			if timer == nil {
				timer = time.After(grace)
			}
		case <-stopping:
			stopping, finished, grace = nil, nil, r.agent.stopGrace
			send()
		case <-timer:
			send()
		}
	}
}

// howEnded is a hall's words for the end of a command: scripts look for them.
func howEnded(e shim.Exit) string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by signal %d", int(e.Signal))
	}
	return e.String()
}

// conclude says how the turn ended.
func (r *run) conclude(ctx context.Context, p *process, t *translator, words *lastWords) answer {
	f := t.finished
	switch {
	case ctx.Err() != nil:
		return cancelledTurn()
	case f == nil && len(r.agent.config.Command) == 0 && p.exit.Signal == 0 && p.exit.Code == exitSessionHeld:
		return failed(words.after("the raider's session is held by another writer (exit code 4); nothing was run"))
	case f == nil:
		return failed(words.after("ended without a result (" + howEnded(p.exit) + ")"))
	}
	switch f.status {
	case "completed":
		return answer{result: turnEnd{StopReason: "end_turn", Meta: f.meta()}}
	case "cancelled":
		return cancelledTurn()
	case "refused":
		return answer{fault: &rpc.Error{
			Code: rpc.CodeInternal, Message: firstOf(f.failure, f.response, "the raider refused the prompt"),
			Data: json.RawMessage(`{"raiderfleet":{"outcome":"refused"}}`),
		}}
	case "failed":
		return failed(firstOf(f.failure, f.response, "the run failed and gave no reason"))
	case "interrupted":
		text := "the run was interrupted"
		if f.signal != "" {
			text += " by signal " + f.signal
		}
		if f.failure != "" {
			text += ": " + f.failure
		}
		return failed(text)
	}
	return failed(firstOf(f.failure, "the run ended with a status that is not known"))
}

// meta is what run.finished says beside status and response.
func (f *finished) meta() *meta {
	if len(f.facts) == 0 {
		return nil
	}
	return &meta{Ours: map[string]any{"run": f.facts}}
}

// maxFaultBytes bounds an error's text.
const maxFaultBytes = 16 << 10

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return lastBytes(text, maxFaultBytes)
		}
	}
	return ""
}

// signal passes a signal on to the command; false when it has not been started.
func (r *run) signal(sig syscall.Signal) bool {
	r.mu.Lock()
	p := r.proc
	r.mu.Unlock()
	if p != nil {
		p.signal(sig)
	}
	return p != nil
}

// update sends a session update.
func (r *run) update(update any) error {
	return r.conn.Notify("session/update", map[string]any{"sessionId": r.session.id, "update": update})
}

// tellInner notes the id of the raider's own session and tells the worker when it is new.
func (r *run) tellInner(id string) {
	if !r.agent.setInner(r.session, id) {
		return
	}
	if err := r.conn.Notify("_raiderfleet/inner", map[string]string{"sessionId": r.session.id, "inner": id}); err != nil {
		r.agent.log.Warn("inner session not told", "error", err)
	}
}

// ask puts a question of the command to the worker. It implements asker.
func (r *run) ask(ctx context.Context, q question) decision {
	id := q.Call
	if id == "" {
		id = "ask-" + strconv.FormatUint(r.questions.Add(1), 10)
	}
	result, err := r.conn.Call(ctx, "session/request_permission", q.request(r.session.id, r.prefix+"/"+id))
	return q.decide(ctx, result, err)
}
