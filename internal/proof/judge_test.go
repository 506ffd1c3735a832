package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"raiderfleet/subjects"
)

// judge says what in the history breaks a promise. Nothing is the verdict of a good one.
func judge(h *history) []string {
	j := &judgement{h: h, starts: map[string]int{}}
	j.bad = append(j.bad, h.problems...)
	for _, e := range h.journal {
		if e.kind == "s" {
			j.starts[e.tag]++
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(h.prompts)) {
		j.fate(h.prompts[tag])
	}
	for _, id := range slices.Sorted(maps.Keys(h.opens)) {
		_, has := h.records[id]
		if has || len(h.told[id]) > 0 {
			j.fail("a raider was opened as if by a prompt: %s has a record or an outcome", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(h.records)) {
		if h.byID[id] == nil && !h.opens[id] {
			j.fail("a run record of a prompt that nobody published: %s", id)
		}
	}
	j.lanes()
	j.closes()
	for i, w := range h.wires {
		j.wire(i, w)
	}
	return j.bad
}

type judgement struct {
	h      *history
	starts map[string]int // by tag
	bad    []string
}

func (j *judgement) fail(format string, args ...any) {
	j.bad = append(j.bad, fmt.Sprintf(format, args...))
}

// fate holds one prompt against promise 1: exactly one outcome for what was accepted, and
// all who tell it tell the same.
func (j *judgement) fate(p *prompt) {
	fail := func(format string, args ...any) {
		j.fail("lane %s: prompt %s %s", p.lane, p.tag, fmt.Sprintf(format, args...))
	}
	if len(p.ids) > 1 {
		fail("was published under %d ids", len(p.ids))
	}
	rec, has := j.h.records[p.id()]
	starts := j.starts[p.tag]
	switch {
	case has && !rec.State.Ended():
		fail("has not ended: %q", rec.State)
	case !has && p.acked:
		fail("was accepted and has no record")
	case !has && starts > 0:
		fail("ran and has no record")
	}
	if starts > p.attempts {
		fail("ran %d times of %d", starts, p.attempts)
	}
	j.answer(p, rec, has, fail)
	if has {
		j.record(p, rec, fail)
	}
}

// answer compares what the client was told with what happened.
func (j *judgement) answer(p *prompt, rec subjects.RunRecord, has bool, fail func(string, ...any)) {
	switch a := p.answer; {
	case a == nil && p.open:
		fail("was never answered although its front door lived")
	case a == nil:
		// Its front door died: the record tells the fate.
	case a.state == "" && has && rec.State == subjects.RunCancelled && j.starts[p.tag] == 0 && strings.Contains(a.text, "the session is closed"):
		// Stored while another front door closed the session: withdrawn, and told so.
	case a.state == "":
		if p.acked || has || j.starts[p.tag] > 0 {
			fail("was answered %q, and was accepted", a.text)
		}
	case a.state == subjects.RunRefused:
		if j.starts[p.tag] > 0 {
			fail("was refused (%q), and ran", a.text)
		}
		if has && rec.State != subjects.RunCancelled && rec.State != subjects.RunRefused {
			fail("was refused (%q), its record says %q", a.text, rec.State)
		}
	case !has && a.state == subjects.RunCancelled && !p.acked:
		// Cancelled before it was published.
		if !p.cancelled {
			fail("was cancelled by nobody")
		}
	case !has:
		fail("was answered %q and has no record", a.state)
	case a.state != rec.State:
		fail("was answered %q, its record says %q", a.state, rec.State)
	}
}

// record judges an outcome by itself.
func (j *judgement) record(p *prompt, rec subjects.RunRecord, fail func(string, ...any)) {
	if rec.State == subjects.RunCancelled && !p.cancelled && (p.answer == nil || p.answer.state != subjects.RunRefused) {
		fail("was cancelled by nobody")
	}
	text := ""
	if rec.Outcome != nil && rec.Outcome.Error != nil {
		text = rec.Outcome.Error.Message
	}
	starts := j.starts[p.tag]
	switch rec.State {
	case subjects.RunRefused:
		fail("was refused: %s", text)
	case subjects.RunCompleted:
		if starts == 0 {
			fail("was completed and never ran")
		}
	case subjects.RunFailed:
		// Only a lost or stopped worker may fail a run: a raider that can't be had would
		// make everything else true of nothing.
		lost, stopped := strings.Contains(text, "was lost"), strings.Contains(text, "was stopped")
		switch {
		case !lost && !stopped:
			fail("failed: %s", text)
		case lost && rec.Attempt != p.attempts:
			fail("was given up in attempt %d of %d", rec.Attempt, p.attempts)
		}
	case subjects.RunCancelled, subjects.RunRunning:
	default:
		fail("has an unknown outcome %q", rec.State)
	}
	if rec.Attempt > p.attempts {
		fail("has a record of attempt %d of %d", rec.Attempt, p.attempts)
	}
	if starts > rec.Attempt {
		fail("ran %d times in %d attempts", starts, rec.Attempt)
	}
	told := j.h.told[p.id()]
	if len(told) == 0 && rec.State != subjects.RunCancelled {
		fail("has no outcome event")
	}
	for _, state := range told {
		if state != rec.State {
			fail("has a record that says %q, and an event %q", rec.State, state)
		}
	}
}

// lanes holds the journal against promise 2.
func (j *judgement) lanes() {
	current := map[string]entry{} // the run that a lane is in
	last := map[string]uint64{}   // the highest place in the backlog that has started
	for _, e := range j.h.journal {
		p := j.h.prompts[e.tag]
		if p == nil {
			j.fail("lane %s: %s ran, and nobody sent it", e.lane, e.tag)
			continue
		}
		if string(p.lane) != e.lane {
			j.fail("lane %s: prompt %s ran, it is of lane %s", e.lane, e.tag, p.lane)
		}
		if e.kind == "s" {
			// A publish that was repeated under the same id, and not as a duplicate, says
			// where the message was stored last: its run may have begun from an earlier
			// one, whose acknowledgement nobody saw.
			if known := p.seq != 0 && (!p.retold || e.at > p.at); known {
				if p.seq < last[e.lane] {
					j.fail("lane %s: prompt %s started after a later one", e.lane, e.tag)
				}
				last[e.lane] = max(last[e.lane], p.seq)
			}
			current[e.lane] = e
			continue
		}
		// A sign of life of a run after the next one's start: two were live.
		if c := current[e.lane]; c.tag != e.tag || c.pid != e.pid {
			j.fail("lane %s: prompt %s (pid %d) lives %.1f ms after %s (pid %d) started", e.lane, e.tag, e.pid, float64(e.at-c.at)/1e6, c.tag, c.pid)
		}
	}
}

// closes: a session/close is answered when all has ended.
func (j *judgement) closes() {
	for _, c := range j.h.closes {
		covered := map[string]bool{}
		for _, tag := range c.tags {
			covered[tag] = true
		}
		for _, e := range j.h.journal {
			if covered[e.tag] && e.at > c.at {
				j.fail("session %s: prompt %s lives %.1f ms after the session was closed", c.session, e.tag, float64(e.at-c.at)/1e6)
				break
			}
		}
	}
}
