package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// resetBound bounds how long a lane's owner is asked to forget the agent's session.
const resetBound = 15 * time.Second

// Session is a session and where it is.
type Session struct {
	Session   subjects.SessionID    `json:"session"`
	Principal subjects.Principal    `json:"principal"`
	Raider    subjects.Raider       `json:"raider"`
	Slot      string                `json:"slot,omitempty"`
	Title     string                `json:"title,omitempty"`
	Cwd       string                `json:"cwd"`
	State     subjects.SessionState `json:"state"`
	// Activity is the state of its lane at Worker: "running", "warm", …; empty without one.
	Activity string            `json:"activity,omitempty"`
	Worker   subjects.Instance `json:"worker,omitempty"`
	Prompt   subjects.PromptID `json:"prompt,omitempty"`
	// Home is the name of the worker that has its agent's state.
	Home    string    `json:"home,omitempty"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// Sessions lists the sessions of all principals, those that were used last first. closed
// wants the closed ones too. silent are workers that did not answer within a second.
func (f *Fleet) Sessions(ctx context.Context, closed bool) (all []Session, silent []subjects.Instance, err error) {
	bucket := f.b.Fleet().SessionsBucket()
	all = []Session{}
	err = f.values(ctx, bucket, subjects.MetaAllFilter(), func(key string, value []byte) error {
		var m subjects.SessionMeta
		if err := json.Unmarshal(value, &m); err != nil {
			return fmt.Errorf("session %s: %w", key, err)
		}
		if m.State != subjects.SessionDeleted && (closed || m.State != subjects.SessionClosed) {
			all = append(all, Session{
				Session: m.Session, Principal: m.Principal, Raider: m.Raider, Slot: m.Slot, Title: m.Title,
				Cwd: m.Cwd, State: m.State, Created: m.Created, Updated: m.Updated,
			})
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list the sessions: %w", err)
	}
	homes := map[subjects.SessionID]string{}
	err = f.values(ctx, bucket, subjects.AgentAllFilter(), func(key string, value []byte) error {
		_, s, _, err := subjects.ParseSessionKey(key)
		var a subjects.SessionAgent
		if err == nil && json.Unmarshal(value, &a) == nil {
			homes[s] = a.Home
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list the sessions: %w", err)
	}
	lanes, silent, err := f.Lanes(ctx)
	if err != nil {
		return nil, nil, err
	}
	held := map[subjects.SessionID]subjects.LaneStatus{}
	for _, l := range lanes {
		held[l.Session] = l
	}
	for i := range all {
		s := &all[i]
		s.Home = homes[s.Session]
		if l, ok := held[s.Session]; ok {
			s.Activity, s.Worker, s.Prompt = l.State, l.Instance, l.Prompt
		}
	}
	slices.SortFunc(all, func(a, b Session) int {
		return cmp.Or(b.Updated.Compare(a.Updated), cmp.Compare(a.Session, b.Session))
	})
	return all, silent, nil
}

// SlotSession finds the slot's own session of a principal in a directory, or with none in
// any: the open one that was begun last. The zero SessionMeta: there is none.
func (f *Fleet) SlotSession(ctx context.Context, p subjects.Principal, slot, cwd string) (subjects.SessionMeta, error) {
	all, err := f.onSlot(ctx, slot)
	i := slices.IndexFunc(all, func(m subjects.SessionMeta) bool {
		return m.SlotsOwn && m.Principal == p && (cwd == "" || m.Cwd == cwd)
	})
	if err != nil || i < 0 {
		return subjects.SessionMeta{}, err
	}
	return all[i], nil
}

// onSlot lists the open sessions on a slot, those that were begun last first.
func (f *Fleet) onSlot(ctx context.Context, slot string) ([]subjects.SessionMeta, error) {
	number := func(s string) string { return strings.TrimLeft(s, "0") } // 01bjorn is 1bjorn
	var all []subjects.SessionMeta
	err := f.values(ctx, f.b.Fleet().SessionsBucket(), subjects.MetaAllFilter(), func(key string, value []byte) error {
		var m subjects.SessionMeta
		if err := json.Unmarshal(value, &m); err != nil {
			return fmt.Errorf("session %s: %w", key, err)
		}
		if m.State == subjects.SessionOpen && m.Slot != "" && number(m.Slot) == number(slot) {
			all = append(all, m)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the sessions on slot %s: %w", slot, err)
	}
	slices.SortFunc(all, func(a, b subjects.SessionMeta) int {
		// By its id where two are as old: everybody has to find the same.
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Session, b.Session))
	})
	return all, nil
}

// bySlot finds the slot's own session, or else the only one on it. ErrNoSession.
func (f *Fleet) bySlot(ctx context.Context, slot string) (subjects.SessionMeta, error) {
	own, err := f.SlotSession(ctx, subjects.LocalPrincipal, slot, "")
	if err != nil || own.Session != "" {
		return own, err
	}
	all, err := f.onSlot(ctx, slot)
	switch {
	case err != nil:
		return own, err
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return own, fmt.Errorf("slot:%s: %w: none is on the slot", slot, ErrNoSession)
	}
	return own, fmt.Errorf("slot:%s: %w of its own; %d are on the slot, name one by its id", slot, ErrNoSession, len(all))
}

// Reset is what was forgotten.
type Reset struct {
	Session subjects.SessionID `json:"session"`
	Binding string             `json:"binding"`
	// InnerID was the session's id inside the agent; empty when it had none.
	InnerID string `json:"inner_id,omitempty"`
}

// ResetSession makes the agent's session be forgotten: the session's next prompt starts a
// new one, without the earlier conversation and without its permission rules. What runs
// goes on in the old one. The transcript stays. ErrNoSession.
func (f *Fleet) ResetSession(ctx context.Context, id string) (Reset, error) {
	m, err := f.Session(ctx, id)
	if err != nil {
		return Reset{}, err
	}
	done := Reset{Session: m.Session, Binding: m.Binding()}
	bucket, key := f.b.Fleet().SessionsBucket(), subjects.AgentKey(m.Principal, m.Session)
	var agent subjects.SessionAgent
	if _, err := f.b.GetJSON(ctx, bucket, key, &agent); err == nil {
		done.InnerID = agent.InnerID // else there is nothing that we could name
	}
	// First the record, which the next owner reads, then the owner that there is: one that
	// read it before is subscribed by now.
	if err := f.b.Delete(ctx, bucket, key); err != nil {
		return Reset{}, err
	}
	bound, cancel := context.WithTimeout(ctx, resetBound)
	defer cancel()
	req := subjects.ControlRequest{Op: subjects.ControlReset, Principal: m.Principal, Session: m.Session, By: cancelBy}
	if _, err := f.askControl(bound, m.Lane, req, func() bool { return false }); err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return Reset{}, fmt.Errorf("the session's raider was not told: %w", err)
	}
	f.tell(subjects.FleetEvent{
		Kind: subjects.SessionReset, Raider: m.Raider, Lane: m.Lane, Session: m.Session,
		Principal: m.Principal, Binding: done.Binding, By: cancelBy,
	})
	return done, f.note(ctx, m, done)
}

// note tells the session's clients.
func (f *Fleet) note(ctx context.Context, m subjects.SessionMeta, done Reset) error {
	body, err := json.Marshal(subjects.Note{
		Type: subjects.SessionReset, Binding: done.Binding,
		Text: "The agent's session was reset: the next prompt starts without the earlier conversation.",
	})
	if err != nil {
		return err
	}
	_, err = f.b.Publish(ctx, &nats.Msg{
		Subject: f.b.Fleet().Event(m.Session), Data: body,
		Header: subjects.EventHeader{Kind: subjects.EventNote}.Header(),
	})
	return err
}

// WriteSessions writes what sessions shows.
func WriteSessions(w io.Writer, all []Session, now time.Time) error {
	rows := make([][]string, 0, len(all))
	for _, s := range all {
		name := cmp.Or(s.Slot, string(s.Raider))
		where := cmp.Or(string(s.Worker), s.Home)
		state := string(s.State)
		if s.Activity != "" {
			state += ", " + s.Activity
		}
		rows = append(rows, []string{
			string(s.Session), string(s.Principal), name, state, orDash(where),
			age(now, s.Created), age(now, s.Updated), orDash(cell(s.Title)), cell(s.Cwd),
		})
	}
	return table(w, "no session is there", []string{"SESSION", "PRINCIPAL", "RAIDER", "STATE", "WORKER", "CREATED", "UPDATED", "TITLE", "CWD"}, rows)
}

// WriteReset writes what session reset did.
func WriteReset(w io.Writer, r Reset) error {
	_, err := fmt.Fprintf(w, "%s reset\n", r.Session)
	return err
}
