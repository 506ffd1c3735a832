package worker

import (
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// logBook bounds what is kept of a process's stderr. Used by the goroutine that reads it.
type logBook struct {
	max   int64
	lines []int64 // the sizes of the lines that are kept
	bytes int64
}

// add counts a line. keep is how many of the last lines stay; 0: none has to go yet. A
// quarter is let grow over the bound: a purge for each line would cost more than the line.
func (b *logBook) add(line int) (keep uint64) {
	if b.max <= 0 {
		return 0
	}
	b.lines = append(b.lines, int64(line))
	b.bytes += int64(line)
	if b.bytes <= b.max+b.max/4 {
		return 0
	}
	for len(b.lines) > 1 && b.bytes > b.max {
		b.bytes -= b.lines[0]
		b.lines = b.lines[1:]
	}
	return uint64(len(b.lines))
}

// trimLog lets the older part of a session's log go. A log may be lost, so a failure is
// made good by the next time.
func (p *process) trimLog(keep uint64) {
	ctx, cancel := p.l.w.b.Bound(p.l.ctx, p.l.w.b.AckWait()/3)
	defer cancel()
	err := p.l.w.b.Cut(ctx, p.l.w.fleet.LogsStream(), bus.Cut{Subject: p.l.w.fleet.Log(p.l.w.instance, p.session), Keep: keep})
	if err != nil {
		p.l.w.log.Debug("log not cut", "session", string(p.session), "error", err)
	}
}

// keepEventsFor is how long a run's events stay at least: clients may be that far behind.
const keepEventsFor = time.Hour

// toldRun is a run whose transcript entry is stored.
type toldRun struct {
	first uint64 // the EVENTS sequence at which it begins
	at    time.Time
}

// keepRun notes that a run's transcript entry is stored, and lets the events of the runs go
// that are beyond what is kept; first is where its own begin. Twice as many are let come
// together, since a purge costs the store a look at all of its blocks. For settle's
// background, one at a time.
func (l *lane) keepRun(s subjects.SessionID, first uint64) {
	keep := l.w.c.KeepEvents
	if keep <= 0 || first == 0 {
		return
	}
	l.told[s] = append(l.told[s], toldRun{first: first, at: time.Now()})
	runs := l.told[s]
	// A client that reads slowly reads on from EVENTS: what is young is never cut.
	if len(runs) > 2*keep && time.Since(runs[len(runs)-keep-1].at) >= l.w.keepFor {
		runs = runs[len(runs)-keep:]
		ctx, cancel := l.w.b.Bound(l.ctx, l.w.b.AckWait()/3)
		defer cancel()
		err := l.w.b.Cut(ctx, l.w.fleet.EventsStream(), bus.Cut{Subject: l.w.fleet.Event(s), Before: runs[0].first})
		if err != nil {
			l.w.log.Debug("events not cut", "session", string(s), "error", err)
		}
	}
	l.told[s] = runs
}
