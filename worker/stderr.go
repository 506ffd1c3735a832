package worker

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// readStderr keeps the last lines and stores all in LOGS.
func (p *process) readStderr() {
	in := bufio.NewReaderSize(p.sp.Stderr(), 64<<10)
	subject := p.l.w.fleet.Log(p.l.w.instance, p.session)
	book := logBook{max: p.l.w.c.MaxLogSize}
	// The prompt's id goes with each line, so that a run's are found among its session's
	// whatever clocks say. What comes between two runs is the earlier one's.
	store := func(text string) {
		m := &nats.Msg{Subject: subject, Data: []byte(text), Header: nats.Header{}}
		if prompt, ok := p.prompt.Load().(subjects.PromptID); ok {
			m.Header.Set(subjects.HeaderPrompt, string(prompt))
		}
		_ = p.l.w.b.Conn().PublishMsg(m) // logs may be lost
	}
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			text := p.l.redact(strings.TrimRight(string(line), "\r\n"))
			p.tail.add(text)
			store(text)
			if keep := book.add(len(text)); keep > 0 {
				p.trimLog(keep)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if !errors.Is(err, io.EOF) {
				p.l.w.log.Debug("raider's stderr ended", "error", err)
			}
			return
		}
	}
}

// tail keeps the last lines of a raider's stderr.
type tail struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (t *tail) add(line string) {
	if len(line) > tailBytes/2 {
		line = line[:tailBytes/2] + "…"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = slices.Delete(t.lines, 0, len(t.lines)-tailLines)
	}
}

// begin forgets what belongs to earlier turns.
func (t *tail) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.Join(t.lines, "\n")
	if len(s) > tailBytes {
		s = s[len(s)-tailBytes:]
	}
	return strings.ToValidUTF8(s, "?")
}
