package proof

import (
	"slices"

	"raiderfleet/subjects"
)

// breach is one thing that no fleet may do, and what a judge has to say about it.
type breach struct {
	name    string
	want    string
	retried bool // in the history of a retried turn
	breaks  func(made)
}

func breaches() []breach {
	return slices.Concat(fateBreaches(), laneBreaches(), wireBreaches())
}

// fateBreaches break promise 1.
func fateBreaches() []breach {
	state := func(tag string, s subjects.RunState, text string) func(made) {
		return func(m made) {
			m.prompts[tag].answer.state = s
			m.ends(tag, s, text)
		}
	}
	return []breach{
		{name: "an accepted prompt is lost", want: "was accepted and has no record", breaks: func(m made) { delete(m.records, "pa") }},
		{name: "a prompt never ends", want: "has not ended", breaks: func(m made) { m.records["pa"] = subjects.RunRecord{State: subjects.RunRunning, Attempt: 1} }},
		{name: "a run without a record", want: "ran and has no record", breaks: func(m made) {
			delete(m.records, "pa")
			m.prompts["a"].acked = false
		}},
		{name: "two prompts of one", want: "published under 2 ids", breaks: func(m made) { m.prompts["a"].ids = append(m.prompts["a"].ids, "other") }},
		{name: "a record of nothing", want: "that nobody published", breaks: func(m made) { m.records["other"] = subjects.RunRecord{State: subjects.RunCancelled} }},
		{name: "an open with a record", want: "as if by a prompt", breaks: func(m made) {
			m.opens["o"] = true
			m.records["o"] = subjects.RunRecord{State: subjects.RunCancelled}
		}},
		{name: "an open with an outcome", want: "as if by a prompt", breaks: func(m made) {
			m.opens["o"], m.told["o"] = true, []subjects.RunState{subjects.RunCompleted}
		}},
		{name: "an event that says something else", want: "and an event", breaks: func(m made) { m.told["pa"] = append(m.told["pa"], subjects.RunFailed) }},
		{name: "no event", want: "has no outcome event", breaks: func(m made) { delete(m.told, "pa") }},
		{name: "never answered", want: "never answered", breaks: func(m made) { m.prompts["b"].answer, m.prompts["b"].open = nil, true }},
		{name: "answered otherwise", want: "its record says", breaks: func(m made) { m.prompts["a"].answer.state = subjects.RunFailed }},
		{name: "answered and forgotten", want: "answered \"completed\" and has no record", breaks: func(m made) {
			delete(m.records, "pa")
			m.prompts["a"].acked = false
		}},
		{name: "an error, and it ran", want: "and was accepted", breaks: func(m made) { m.prompts["a"].answer.state = "" }},
		{name: "refused, and it ran", want: "and ran", breaks: func(m made) { m.prompts["a"].answer.state = subjects.RunRefused }},
		{name: "refused, and it ended otherwise", want: "its record says", breaks: func(m made) { m.prompts["a"].answer.state = subjects.RunRefused }},
		{name: "refused by a worker", want: "was refused: no", breaks: state("a", subjects.RunRefused, "no")},
		{name: "cancelled by nobody", want: "cancelled by nobody", breaks: state("a", subjects.RunCancelled, "")},
		{name: "cancelled by nobody, unpublished", want: "cancelled by nobody", breaks: func(m made) {
			m.prompt("c", func(p *prompt) { p.ids, p.acked, p.answer = nil, false, &answer{state: subjects.RunCancelled} })
		}},
		{name: "failed without a lost worker", want: "failed: no reason", breaks: state("a", subjects.RunFailed, "no reason")},
		{name: "completed and never run", want: "never ran", breaks: func(m made) { m.journal = m.journal[3:] }},
		{name: "given up too early", want: "given up in attempt 2 of 3", retried: true, breaks: func(m made) {
			state("a", subjects.RunFailed, "worker w was lost")(m)
			m.attempt("a", 2)
		}},
		{name: "one attempt too many", want: "a record of attempt 4 of 3", retried: true, breaks: func(m made) { m.attempt("a", 4) }},
		{name: "a run that no attempt stands for", want: "ran 2 times in 1 attempts", retried: true, breaks: func(m made) { m.attempt("a", 1) }},
		{name: "answered twice", want: "answered twice", breaks: func(m made) { m.answered("a", answer{state: subjects.RunCompleted}) }},
		{name: "published by nobody", want: "with a text that nobody sent", breaks: func(m made) {
			m.published("px", "s1", tagOf([]byte(`{"prompt":[{"type":"text","text":"sess-s1 x 1 0"}]}`)))
		}},
	}
}

// laneBreaches break promise 2, or what session/close says.
func laneBreaches() []breach {
	return []breach{
		{name: "run twice", want: "ran 2 times of 1", breaks: func(m made) { m.runs("s x b") }},
		{name: "retried too often", want: "ran 4 times of 3", retried: true, breaks: func(m made) { m.runs("s xxx a", "s xxxx a") }},
		{name: "two live runs", want: "lives", breaks: func(m made) { m.runs("b x a") }},
		{name: "two live runs of one prompt", want: "lives", retried: true, breaks: func(m made) { m.runs("b x a") }},
		{name: "out of order", want: "started after a later one", breaks: func(m made) { m.prompts["a"].seq = 9 }},
		{name: "out of order, published again", want: "started after a later one", breaks: func(m made) {
			m.prompts["a"].seq, m.prompts["a"].retold = 9, true // before it started
		}},
		{name: "in a foreign lane", want: "it is of lane", breaks: func(m made) { m.prompts["a"].lane = "slot-1bjorn" }},
		{name: "run for nobody", want: "nobody sent it", breaks: func(m made) { m.runs("s x c") }},
		{name: "closed, and it lives", want: "after the session was closed", breaks: func(m made) {
			m.closes = append(m.closes, closing{session: "s1", tags: []string{"a"}, at: 2})
		}},
	}
}

// wireBreaches break promise 4, or what session/load says.
func wireBreaches() []breach {
	edit := func(do func([]seen) []seen) func(made) {
		return func(m made) {
			m.wires[0] = do(m.wires[0])
			for i := range m.wires[0] {
				m.wires[0][i].session = "s1"
			}
		}
	}
	loads := func(shown ...seen) func(made) {
		return func(m made) {
			all := append([]seen{{kind: sawLoad, whole: []string{"a"}}}, shown...)
			m.saw(append(all, seen{kind: sawLoaded})...)
		}
	}
	return []breach{
		{name: "an update after the response", want: "after its response", breaks: edit(func(w []seen) []seen { return append(w, update("b", 1, 1, false)) })},
		{name: "the user's message after the response", want: "after its response", breaks: edit(func(w []seen) []seen { return append(w, seen{kind: sawUser, tag: "b"}) })},
		{name: "the response before the last update", want: "before all of its updates", breaks: edit(func(w []seen) []seen { return slices.Delete(w, 1, 2) })},
		{name: "no update at all", want: "before all of its updates", breaks: edit(func(w []seen) []seen { return slices.Delete(w, 0, 2) })},
		{name: "the first update is missing", want: "before all of its updates", breaks: edit(func(w []seen) []seen { return slices.Delete(w, 0, 1) })},
		{name: "an update in the middle is missing", want: "before all of its updates", breaks: edit(func(w []seen) []seen { w[1].n = 2; return w })},
		{name: "an update twice", want: "twice or out of order", breaks: edit(func(w []seen) []seen { return slices.Insert(w, 1, w[0]) })},
		{name: "updates out of order", want: "twice or out of order", breaks: edit(func(w []seen) []seen { w[0].n, w[1].n = 1, 0; return w })},
		{name: "an update after the last", want: "after the turn's last one", breaks: edit(func(w []seen) []seen { w[0].last = true; return w })},
		{name: "turns mixed", want: "amid another turn", breaks: edit(func(w []seen) []seen {
			return []seen{w[0], w[3], w[1], w[2], w[4]}
		})},
		{name: "torn although only cancelled", want: "missing in the middle", breaks: func(m made) {
			m.prompts["a"].answer.state, m.prompts["a"].cancelled = subjects.RunCancelled, true
			m.wires[0][1].n = 2
		}},
		{name: "attempts mixed", want: "amid a later one", retried: true, breaks: edit(func(w []seen) []seen { return slices.Insert(w, 3, update("a", 1, 3, false)) })},
		{name: "a load without a turn", want: "does not show it whole", breaks: loads()},
		{name: "a load with half a turn", want: "does not show it whole", breaks: loads(update("a", 1, 0, false))},
		{name: "a load that shows twice", want: "after the turn's last one", breaks: loads(update("a", 1, 0, true), update("a", 1, 0, true))},
	}
}
