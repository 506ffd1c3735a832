package proof

import (
	"slices"
	"strings"
	"testing"

	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// made is a history that is built by hand.
type made struct{ *history }

func (m made) prompt(tag string, change func(*prompt)) {
	p := &prompt{tag: tag, session: "s1", lane: "sess-s1", attempts: 1, ids: []subjects.PromptID{subjects.PromptID("p" + tag)}, acked: true, seq: uint64(len(m.prompts) + 1), tries: 1}
	p.answer = &answer{state: subjects.RunCompleted}
	if change != nil {
		change(p)
	}
	m.prompts[tag] = p
	for _, id := range p.ids {
		m.byID[id] = p
	}
}

// ends gives a prompt its record and its event.
func (m made) ends(tag string, state subjects.RunState, text string) {
	id := m.prompts[tag].id()
	out := &subjects.Outcome{State: state}
	if text != "" {
		out.Error = &subjects.RunError{Message: text}
	}
	m.records[id] = subjects.RunRecord{State: state, Attempt: 1, Outcome: out}
	m.told[id] = []subjects.RunState{state}
}

// attempt sets the attempt of a prompt's record.
func (m made) attempt(tag string, n int) {
	id := m.prompts[tag].id()
	rec := m.records[id]
	rec.Attempt = n
	m.records[id] = rec
}

// runs journals: "s 7 a" is the start of a's run in process 7.
func (m made) runs(lines ...string) {
	for _, l := range lines {
		w := strings.Fields(l)
		m.journal = append(m.journal, entry{kind: w[0], at: shim.Boottime(len(m.journal) + 1), pid: len(w[1]), lane: "sess-s1", tag: w[2]})
	}
}

// saw notes what a connection saw.
func (m made) saw(all ...seen) {
	for i := range all {
		all[i].session = "s1"
	}
	m.wires = append(m.wires, all)
}

func update(tag string, pid, n int, last bool) seen {
	return seen{kind: sawUpdate, tag: tag, pid: pid, n: n, last: last}
}

func response(tag string) seen { return seen{kind: sawAnswer, tag: tag} }

// good is two turns of a session without fault.
func good() made {
	m := made{newHistory()}
	m.prompt("a", nil)
	m.prompt("b", nil)
	m.ends("a", subjects.RunCompleted, "")
	m.ends("b", subjects.RunCompleted, "")
	m.runs("s x a", "b x a", "e x a", "s x b", "b x b", "e x b")
	m.saw(update("a", 1, 0, false), update("a", 1, 1, true), response("a"), update("b", 1, 0, true), response("b"))
	return m
}

// retried is a turn whose first worker was lost.
func retried() made {
	m := made{newHistory()}
	m.prompt("a", func(p *prompt) { p.attempts = 3 })
	m.ends("a", subjects.RunCompleted, "")
	m.attempt("a", 2)
	m.runs("s x a", "b x a", "s xx a", "b xx a", "e xx a")
	m.saw(update("a", 1, 0, false), update("a", 1, 2, false), update("a", 2, 0, false), update("a", 2, 1, true), response("a"))
	return m
}

// The judges find nothing in a good history, and each breach of a promise in one that was
// good but for it. Without this a checker that sees nothing would look like a fleet
// without faults.
func TestJudgeSees(t *testing.T) {
	t.Parallel()
	for _, h := range []made{good(), retried()} {
		if bad := judge(h.history); len(bad) > 0 {
			t.Errorf("a good history: %q", bad)
		}
	}
	for _, c := range breaches() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := good()
			if c.retried {
				h = retried()
			}
			c.breaks(h)
			bad := judge(h.history)
			if !slices.ContainsFunc(bad, func(b string) bool { return strings.Contains(b, c.want) }) {
				t.Errorf("judged %q, want %q", bad, c.want)
			}
		})
	}
}

// What is no breach: each of these looks like one.
func TestJudgeAllows(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(made){
		"a prompt whose front door died before it published": func(m made) {
			m.prompt("c", func(p *prompt) { p.ids, p.acked, p.seq, p.answer = nil, false, 0, nil })
		},
		"one that was accepted, and answered nobody": func(m made) {
			m.prompts["b"].answer = nil
			m.wires[0] = m.wires[0][:4]
		},
		"one that was cancelled before it was published": func(m made) {
			m.prompt("c", func(p *prompt) {
				p.ids, p.acked, p.seq, p.cancelled, p.answer = nil, false, 0, true, &answer{state: subjects.RunCancelled}
			})
		},
		"a run that was lost with its worker, a part of its updates with it": func(m made) {
			m.prompts["a"].answer.state = subjects.RunFailed
			m.ends("a", subjects.RunFailed, "worker w was lost while it ran this prompt")
			m.wires[0] = []seen{{session: "s1", kind: sawUpdate, tag: "a", pid: 1, n: 3}, {session: "s1", kind: sawAnswer, tag: "a"}}
		},
		"a publish that was stored twice, the run between the two": func(m made) {
			m.prompts["a"].seq, m.prompts["a"].retold, m.prompts["a"].at = 9, true, 5
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			do(h)
			if bad := judge(h.history); len(bad) > 0 {
				t.Errorf("judged %q", bad)
			}
		})
	}
}
