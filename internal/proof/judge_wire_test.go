package proof

import (
	"raiderfleet/subjects"
)

// wire holds what one connection of a client saw against promise 4: a turn's updates come
// before its response and none after it, whole and in order; one turn after the other; and
// a session/load shows what there was.
func (j *judgement) wire(number int, all []seen) {
	w := &wireJudge{j: j, number: number, sessions: map[subjects.SessionID]*wireSession{}}
	for _, s := range all {
		w.see(s)
	}
}

type wireJudge struct {
	j        *judgement
	number   int
	sessions map[subjects.SessionID]*wireSession
}

// wireSession is what a connection has seen of a session.
type wireSession struct {
	turns    map[string]*wireTurn
	current  string // the turn that is being shown
	loading  bool
	whole    []string        // that the load has to show
	finished map[string]bool // turns after which another one was shown
}

// wireTurn is what was shown of a turn.
type wireTurn struct {
	attempts []*wireAttempt
	answered bool
}

// wireAttempt is what was shown of one run of it.
type wireAttempt struct {
	pid   int
	next  int
	first int
	holes bool
	last  bool
}

func (w *wireJudge) session(id subjects.SessionID) *wireSession {
	s := w.sessions[id]
	if s == nil {
		s = &wireSession{turns: map[string]*wireTurn{}, finished: map[string]bool{}}
		w.sessions[id] = s
	}
	return s
}

func (s *wireSession) turn(tag string) *wireTurn {
	t := s.turns[tag]
	if t == nil {
		t = &wireTurn{}
		s.turns[tag] = t
	}
	return t
}

func (w *wireJudge) see(e seen) {
	s := w.session(e.session)
	fail := func(what string) {
		w.j.fail("connection %d, session %s: prompt %s: %s", w.number, e.session, e.tag, what)
	}
	switch e.kind {
	case sawSent:
	case sawLoad:
		// All is shown from the beginning.
		*s = wireSession{turns: map[string]*wireTurn{}, finished: map[string]bool{}, loading: true, whole: e.whole}
	case sawLoaded:
		s.loading = false
		for _, tag := range s.whole {
			e.tag = tag
			if t := s.turn(tag); !t.complete() && !e.incomplete {
				fail("it was completed, and session/load does not show it whole")
			}
		}
	case sawUser, sawUpdate:
		if s.turn(e.tag).answered {
			fail("something of the turn came after its response")
		}
		if e.tag != s.current {
			if s.finished[e.tag] {
				fail("something of the turn came amid another turn of the session")
			}
			s.finished[s.current] = true
			s.current = e.tag
		}
		if e.kind == sawUpdate {
			if what := s.turn(e.tag).update(e); what != "" {
				fail(what)
			}
		}
	case sawAnswer:
		t := s.turn(e.tag)
		t.answered = true
		// What may be missing from a turn: the end of one that was cancelled or failed,
		// and anything of one whose worker was lost, which may not have stored it.
		switch rec := w.j.outcome(e.tag); {
		case rec == subjects.RunCompleted && !t.complete():
			fail("it was completed, and was answered before all of its updates were shown")
		case rec == subjects.RunCancelled && t.torn():
			fail("an update is missing in the middle of the turn")
		}
		s.finished[e.tag] = true
		if s.current == e.tag {
			s.current = ""
		}
	}
}

// outcome is what the client was told of a prompt.
func (j *judgement) outcome(tag string) subjects.RunState {
	if p := j.h.prompts[tag]; p != nil && p.answer != nil {
		return p.answer.state
	}
	return ""
}

// update takes the next update of a turn and says what is wrong with it.
func (t *wireTurn) update(e seen) string {
	n := len(t.attempts)
	if n == 0 || t.attempts[n-1].pid != e.pid {
		for _, a := range t.attempts {
			if a.pid == e.pid {
				return "an update of an earlier attempt came amid a later one"
			}
		}
		t.attempts = append(t.attempts, &wireAttempt{pid: e.pid, first: e.n, next: e.n})
		n++
	}
	a := t.attempts[n-1]
	switch {
	case a.last:
		return "an update came after the turn's last one"
	case e.n < a.next:
		return "updates came twice or out of order"
	case e.n > a.next:
		a.holes = true
	}
	a.next, a.last = e.n+1, e.last
	return ""
}

// complete says whether the turn's last run was shown from its first update to its last.
func (t *wireTurn) complete() bool {
	if len(t.attempts) == 0 {
		return false
	}
	a := t.attempts[len(t.attempts)-1]
	return a.first == 0 && !a.holes && a.last
}

// torn says whether something is missing between updates of the turn's last run.
func (t *wireTurn) torn() bool {
	if len(t.attempts) == 0 {
		return false
	}
	a := t.attempts[len(t.attempts)-1]
	return a.first != 0 || a.holes
}
