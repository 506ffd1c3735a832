package proof

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// prompt is all that is known of a prompt that a client sent.
type prompt struct {
	tag      string
	session  subjects.SessionID
	lane     subjects.LaneID
	attempts int // how often it may be started: 1, or max_attempts

	// What went to BACKLOG. A front door that died first has published nothing.
	ids    []subjects.PromptID // more than one is a violation
	tries  int                 // publishes that were sent
	acked  bool                // BACKLOG's acknowledgement was seen: it is accepted
	seq    uint64              // of the message; 0: not known
	at     shim.Boottime       // of the acknowledgement
	retold bool                // the acknowledgement is of a later try, and no duplicate's

	// What clients did and learnt.
	cancelled bool // somebody asked for its end, or may have
	answer    *answer
	open      bool // its front door lived, and it was never answered
}

func (p *prompt) id() subjects.PromptID {
	if len(p.ids) == 0 {
		return ""
	}
	return p.ids[0]
}

// answer is the response to a session/prompt.
type answer struct {
	// state is the outcome that it tells; empty when it says that nothing was accepted.
	state subjects.RunState
	text  string
}

// closing is an answered session/close: nothing that it covers lives on.
type closing struct {
	session subjects.SessionID
	tags    []string // accepted before it was asked for
	at      shim.Boottime
}

// entry is a line of the raiders' journal.
type entry struct {
	kind string // s, b, e: start, beat, end
	at   shim.Boottime
	pid  int
	lane string
	tag  string
}

// seen is something that a client sent or received, in the order on its connection.
type seen struct {
	kind    seenKind
	at      shim.Boottime
	session subjects.SessionID
	tag     string // of a prompt
	// Of an update: the raider process, the number in its turn, and whether it is the last.
	pid, n int
	last   bool
	// Of a load's end: it said that it is not whole.
	incomplete bool
	// Of a load's begin: the turns of which the client knows that they were completed.
	whole []string
}

type seenKind string

const (
	sawSent   seenKind = "sent"
	sawUpdate seenKind = "update"
	sawUser   seenKind = "user"
	sawAnswer seenKind = "answer"
	sawLoad   seenKind = "load"
	sawLoaded seenKind = "loaded"
)

// history is what happened. The recorder fills it, the judges read it.
type history struct {
	mu       sync.Mutex // guards the rest while it is recorded
	prompts  map[string]*prompt
	byID     map[subjects.PromptID]*prompt
	opens    map[subjects.PromptID]bool // ids of what only opens a raider
	wires    [][]seen                   // one for each connection of a client
	closes   []closing
	problems []string // seen while recording

	// Read at the end.
	records map[subjects.PromptID]subjects.RunRecord
	told    map[subjects.PromptID][]subjects.RunState // outcome events
	journal []entry
}

func newHistory() *history {
	return &history{
		prompts: map[string]*prompt{}, byID: map[subjects.PromptID]*prompt{}, opens: map[subjects.PromptID]bool{},
		records: map[subjects.PromptID]subjects.RunRecord{}, told: map[subjects.PromptID][]subjects.RunState{},
	}
}

// sent notes a prompt before it is sent.
func (h *history) sent(p *prompt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prompts[p.tag] = p
}

// published notes a publish to BACKLOG before it can reach a server.
func (h *history) published(id subjects.PromptID, session subjects.SessionID, tag string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.prompts[tag]
	if p == nil || p.session != session {
		h.problems = append(h.problems, "prompt "+string(id)+" was published for session "+string(session)+" with a text that nobody sent: "+tag)
		return
	}
	if !slices.Contains(p.ids, id) {
		p.ids = append(p.ids, id)
	}
	h.byID[id] = p
	p.tries++
}

// opened notes that a raider is to be opened without a prompt, before that can reach a server.
func (h *history) opened(id subjects.PromptID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opens[id] = true
}

// acked notes an acknowledgement of BACKLOG, whether or not it ever arrives.
func (h *history) acked(id subjects.PromptID, seq uint64, duplicate bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.byID[id]
	if p == nil || p.acked {
		return
	}
	p.acked, p.seq, p.at, p.retold = true, seq, shim.Now(), p.tries > 1 && !duplicate
}

// cancel notes that prompts of a session are to end, before this is asked for: all that
// were sent, or one.
func (h *history) cancel(session subjects.SessionID, tag string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.prompts {
		if p.session == session && (tag == "" || p.tag == tag) && p.answer == nil {
			p.cancelled = true
		}
	}
}

func (h *history) answered(tag string, a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.prompts[tag]
	switch {
	case p == nil:
		h.problems = append(h.problems, "an answer to a prompt that nobody sent: "+tag)
	case p.answer != nil:
		h.problems = append(h.problems, "prompt "+tag+" was answered twice")
	default:
		p.answer = &a
	}
}

// answers is how many prompts were answered to their clients.
func (h *history) answers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, p := range h.prompts {
		if p.answer != nil {
			n++
		}
	}
	return n
}

// of lists the session's prompts for which is true.
func (h *history) of(session subjects.SessionID, is func(*prompt) bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var tags []string
	for _, p := range h.prompts {
		if p.session == session && is(p) {
			tags = append(tags, p.tag)
		}
	}
	return tags
}

// tagOf reads the tag out of the params of a session/prompt, or their beginning.
func tagOf(params []byte) string {
	_, text, _ := bytes.Cut(params, []byte(`"text":"`))
	if w := bytes.SplitN(text[:min(len(text), 200)], []byte(" "), 3); len(w) == 3 {
		return string(w[1])
	}
	return ""
}

// patience is how long whatever must come once everything is whole may take: promise 3,
// and the time in which NATS has no leader.
func patience(ackWait time.Duration) time.Duration { return 2*ackWait + 5*time.Second + 15*time.Second }
