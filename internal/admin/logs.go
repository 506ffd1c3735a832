package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// ErrNoLogs says that an id is of no prompt or session that is known or has written a log.
var ErrNoLogs = errors.New("no such prompt or session; logs are kept for a week")

// logsSettle is how long lines may come after the end of their run was seen: they are
// stored beside it, without being waited for.
const logsSettle = 300 * time.Millisecond

// LogLine is a line that a raider wrote to stderr.
type LogLine struct {
	Time    time.Time          `json:"time"`
	Worker  subjects.Instance  `json:"worker"`
	Session subjects.SessionID `json:"session"`
	// Prompt whose run wrote it, or came before it.
	Prompt subjects.PromptID `json:"prompt,omitempty"`
	Line   string            `json:"line"`
}

// logs is what a call of Logs reads.
type logs struct {
	f       *Fleet
	session subjects.SessionID
	prompt  subjects.PromptID // "": all of the session
	next    uint64            // the sequence in LOGS to go on from
	show    func(LogLine) error
}

// Logs shows the lines of a prompt's runs or of all runs of a session, from whichever
// workers they came, in the order in which they were stored. With follow it goes on until
// the prompt, or what the session has in the backlog, has ended. It blocks. ErrNoLogs.
func (f *Fleet) Logs(ctx context.Context, id string, follow bool, show func(LogLine) error) error {
	l := &logs{f: f, next: 1, show: show}
	if err := l.find(ctx, id); err != nil {
		return err
	}
	if !follow {
		return l.read(ctx)
	}
	wake := make(chan struct{}, 1)
	sub, err := f.wakeOn(f.b.Fleet().LogSession(l.session), wake)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection's end does it as well
	tick := time.NewTicker(look)
	defer tick.Stop()
	end := newEnd(f, l)
	for {
		// In this order: what was written before the end is shown.
		over, err := end.over(ctx)
		if err == nil {
			err = l.read(ctx)
		}
		shown, failed := errors.AsType[*showError](err)
		switch {
		case failed:
			return shown.cause
		case err != nil && (ctx.Err() != nil || !bus.Unclear(err)):
			return err
		case err != nil:
			over = false // NATS is away: read on from here when it is back
		}
		if over {
			return nil
		}
		select {
		case <-tick.C:
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// find finds out which session's lines to read.
func (l *logs) find(ctx context.Context, id string) error {
	f := l.f
	unknown := fmt.Errorf("%s: %w", id, ErrNoLogs)
	p, notPrompt := subjects.ParsePrompt(id)
	if notPrompt == nil {
		r, ok, err := f.record(ctx, p)
		if err != nil {
			return err
		}
		if ok {
			l.session, l.prompt = r.Session, p
			return nil
		}
	}
	m, err := f.Session(ctx, id)
	switch {
	case err == nil:
		l.session = m.Session
		return nil
	case !errors.Is(err, ErrNoSession):
		return err
	}
	waiting, err := f.waiting(ctx, func(s stored) bool { return string(s.header.Prompt) == id })
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		l.session, l.prompt = waiting[0].header.Session, p
		return nil
	}
	// Its record has gone: what it wrote may be there for longer.
	found := errors.New("found")
	err = f.scan(ctx, f.b.Fleet().LogsStream(), jetstream.ConsumerConfig{HeadersOnly: true}, func() {},
		func(m jetstream.Msg, _ uint64, _ time.Time) error {
			_, session, err := f.b.Fleet().ParseLog(m.Subject())
			switch {
			case err != nil:
				return nil //nolint:nilerr // not of this version
			case string(session) == id:
				l.session = session
				return found
			case m.Headers().Get(subjects.HeaderPrompt) == id:
				l.session, l.prompt = session, p
				return found
			}
			return nil
		})
	switch {
	case errors.Is(err, found):
		return nil
	case err != nil:
		return err
	}
	return unknown
}

// read shows what is stored from next on: the bulk with a consumer, the rest one by one
// from the stream's leader, who knows the end.
func (l *logs) read(ctx context.Context) error {
	f := l.f
	stream, subject := f.b.Fleet().LogsStream(), f.b.Fleet().LogSession(l.session)
	const singles = 16
	for n := 0; ; n++ {
		if n == singles {
			err := f.scanOnce(ctx, stream, jetstream.ConsumerConfig{
				FilterSubject: subject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: l.next,
			}, func(m jetstream.Msg, seq uint64, at time.Time) error {
				return l.take(m.Subject(), m.Headers().Get(subjects.HeaderPrompt), m.Data(), seq, at)
			})
			if err != nil && !errors.Is(err, errGap) {
				return err
			}
			n = 0
		}
		m, err := f.b.Next(ctx, stream, subject, l.next)
		if errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the logs: %w", err)
		}
		if err := l.take(m.Subject, m.Header.Get(subjects.HeaderPrompt), m.Data, m.Seq, m.Time); err != nil {
			return err
		}
	}
}

func (l *logs) take(subject, prompt string, data []byte, seq uint64, at time.Time) error {
	l.next = seq + 1
	worker, session, err := l.f.b.Fleet().ParseLog(subject)
	if err != nil || (l.prompt != "" && prompt != string(l.prompt)) {
		return nil //nolint:nilerr // not of this version, or another run's
	}
	err = l.show(LogLine{Time: at, Worker: worker, Session: session, Prompt: subjects.PromptID(prompt), Line: string(data)})
	if err != nil {
		return &showError{err}
	}
	return nil
}

// showError is that of whoever shows the lines: reading again doesn't help.
type showError struct{ cause error }

func (e *showError) Error() string { return e.cause.Error() }
func (e *showError) Unwrap() error { return e.cause }

// end finds out when there is nothing left to follow.
type end struct {
	f    *Fleet
	l    *logs
	open []subjects.PromptID
	seen time.Time // when all had ended
	n    int
}

func newEnd(f *Fleet, l *logs) *end {
	e := &end{f: f, l: l}
	if l.prompt != "" {
		e.open = append(e.open, l.prompt)
	}
	return e
}

// over says whether all has ended, a moment ago.
func (e *end) over(ctx context.Context) (bool, error) {
	if !e.seen.IsZero() {
		return time.Since(e.seen) >= logsSettle, nil
	}
	for {
		if len(e.open) == 0 {
			if e.l.prompt != "" {
				break
			}
			more, err := e.f.waiting(ctx, func(s stored) bool { return s.header.Session == e.l.session })
			if err != nil {
				return false, err
			}
			for _, s := range more {
				// The message of one that has ended may not be deleted yet.
				if r, ok, err := e.f.record(ctx, s.header.Prompt); err != nil || !ok || !r.State.Ended() {
					e.open = append(e.open, s.header.Prompt)
				}
			}
			if len(e.open) == 0 {
				break
			}
		}
		r, ok, err := e.f.record(ctx, e.open[0])
		if err != nil && !bus.Unclear(err) {
			return false, err
		}
		if err != nil || (ok && !r.State.Ended()) {
			return false, nil //nolint:nilerr // read again at the next look
		}
		if !ok {
			// It waits, or its record has gone because it ended long ago.
			if e.n++; e.n%lookBacklog != 1 {
				return false, nil
			}
			id := e.open[0]
			left, err := e.f.waiting(ctx, func(s stored) bool { return s.header.Prompt == id })
			if err != nil || len(left) > 0 {
				return false, err
			}
		}
		e.open = e.open[1:]
	}
	e.seen = time.Now()
	return false, nil
}
