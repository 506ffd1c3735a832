package worker

import (
	"encoding/json"
	"os"

	"raiderfleet/internal/rawjson"
	"raiderfleet/subjects"
)

// maxNewsText bounds the text of an error in a fleet event, in bytes: whoever wants the
// whole reads the run record.
const maxNewsText = 4 << 10

// tellJoined says that the worker serves.
func (w *Worker) tellJoined() {
	e := subjects.FleetEvent{Kind: subjects.WorkerJoined, Host: w.host, PID: os.Getpid()}
	for i := range w.c.Raiders {
		e.Raiders = append(e.Raiders, w.c.Raiders[i].Name)
	}
	w.tell(e)
}

// tellSpawned says that a run has its raider process.
func (l *lane) tellSpawned(r *run, p *process, warm bool) {
	if r.header.Kind == subjects.KindOpen {
		return // no prompt of anybody's
	}
	l.w.tell(subjects.FleetEvent{
		Kind: subjects.RaiderSpawned, Raider: l.raider.Name, Lane: l.id,
		Session: r.header.Session, Principal: r.header.Principal, Prompt: r.header.Prompt,
		Host: l.w.host, PID: p.sp.PID(), Warm: warm, Binding: r.meta.Binding(),
	})
}

// tellEnded says how a prompt has ended.
func (r *run) tellEnded(out subjects.Outcome) {
	l := r.l
	e := subjects.FleetEvent{
		Kind: subjects.RaiderDone, Raider: l.raider.Name, Lane: l.id, Session: r.header.Session,
		Principal: r.header.Principal, Prompt: r.header.Prompt, Outcome: out.State, StopReason: out.StopReason,
	}
	if out.State == subjects.RunRefused {
		e.Kind = subjects.RaiderRefused
	}
	if out.Error != nil {
		e.Error = out.Error.Message
		if len(e.Error) > maxNewsText {
			e.Error = e.Error[:maxNewsText] + "…"
		}
	}
	l.w.tell(e)
}

// askNews is what asked and answered have in common. The tool call's title is not in it: it
// may hold a part of the conversation.
func (w *Worker) askNews(kind subjects.FleetEventKind, b subjects.AskBody) subjects.FleetEvent {
	e := subjects.FleetEvent{
		Kind: kind, Raider: b.Raider, Lane: b.Lane, Session: b.Session, Principal: b.Principal,
		Prompt: b.Prompt, Ask: b.Ask,
	}
	if call, ok := rawjson.Get(b.Request, "toolCall"); ok && rawjson.IsObject(call) {
		if tool, ok := rawjson.Get(call, "kind"); ok {
			_ = json.Unmarshal(tool, &e.Tool) // an agent that says something else says nothing
		}
	}
	return e
}

func (w *Worker) tellAsked(b subjects.AskBody) { w.tell(w.askNews(subjects.RaiderAsked, b)) }

func (w *Worker) tellAnswered(b subjects.AskBody, why, by string) {
	e := w.askNews(subjects.RaiderAnswered, b)
	e.Why, e.By = why, by
	w.tell(e)
}
