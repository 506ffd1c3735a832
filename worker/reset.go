package worker

import (
	"context"

	"raiderfleet/subjects"
)

// reset forgets the agent's session: what runs in the process goes on, the session's next
// run gets a new one. Whoever asks has deleted the record of it, and it is deleted here
// again: a process that was just being opened may have written it in between.
func (l *lane) reset(req subjects.ControlRequest) subjects.ControlReply {
	l.mu.Lock()
	p := l.proc
	l.mu.Unlock()
	if p == nil || p.session != req.Session {
		return subjects.ControlReply{} // another session of the slot: nothing is warm here
	}
	p.stale.Store(true)
	if err := p.forget(req.Principal); err != nil {
		return subjects.ControlReply{Error: "the agent's session is not forgotten yet"}
	}
	// At once when it is idle; a run that goes on keeps the process to its end.
	if idle, _, _ := l.idleSince(); idle {
		l.evict()
	}
	return subjects.ControlReply{}
}

// forget deletes the record of the agent's session.
func (p *process) forget(principal subjects.Principal) error {
	return p.l.do(func(ctx context.Context) error {
		return p.l.w.b.Delete(ctx, p.l.w.fleet.SessionsBucket(), subjects.AgentKey(principal, p.session))
	})
}
