package frontdoor

import (
	"os"

	"raiderfleet/subjects"
)

// tellPresence says that the front door has come or gone.
func (f *FrontDoor) tellPresence(kind subjects.FleetEventKind) {
	e := subjects.FleetEvent{Kind: kind, FrontDoor: f.instance, Host: f.host, PID: os.Getpid()}
	if kind == subjects.FrontDoorJoined {
		for _, r := range f.c.Raiders {
			e.Raiders = append(e.Raiders, r.Name)
		}
	}
	f.tell(e)
}

// tellWaiting says that a prompt did not start at once. Told once a prompt: how its place
// changes is the client's alone.
func (a *attachment) tellWaiting(p queuePlace) {
	a.mu.Lock()
	meta := a.meta
	a.mu.Unlock()
	a.f.tell(subjects.FleetEvent{
		Kind: subjects.RaiderWaiting, Raider: meta.Raider, Lane: meta.Lane, Session: a.session,
		Principal: a.c.principal, Prompt: p.Prompt, FrontDoor: a.f.instance, Place: p.Place, Of: p.Of,
		Binding: meta.Binding(),
	})
}

// tellCancelled says that a prompt was cancelled that never ran: no worker tells of it.
func (f *FrontDoor) tellCancelled(meta subjects.SessionMeta, p subjects.PromptID) {
	f.tell(subjects.FleetEvent{
		Kind: subjects.RaiderDone, Raider: meta.Raider, Lane: meta.Lane, Session: meta.Session,
		Principal: meta.Principal, Prompt: p, FrontDoor: f.instance, Outcome: subjects.RunCancelled,
	})
}
