package frontdoor

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// listPage is how many sessions one answer to session/list has at the most.
const listPage = 50

// sessionInfo is a session in the answer to session/list.
type sessionInfo struct {
	ID                    subjects.SessionID `json:"sessionId"`
	Cwd                   string             `json:"cwd"`
	AdditionalDirectories []string           `json:"additionalDirectories,omitempty"`
	Title                 string             `json:"title,omitempty"`
	UpdatedAt             time.Time          `json:"updatedAt"`
	Meta                  map[string]string  `json:"_meta"`
}

// listCursor is the last session of a page. Clients get it as a text that tells nothing.
type listCursor struct {
	Created time.Time          `json:"created"`
	Session subjects.SessionID `json:"session"`
}

// listSessions answers session/list: the principal's own, the newest first, closed ones
// too, since they can be loaded. It reads each session's record.
func (c *conn) listSessions(ctx context.Context, r *rpc.Request) error {
	var p struct {
		Cwd    *string `json:"cwd"`
		Cursor *string `json:"cursor"`
	}
	obj, err := asObject(r.Params)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(obj, &p); err != nil {
		return invalidParams("%s", mismatch(err))
	}
	if p.Cwd != nil && !path.IsAbs(*p.Cwd) {
		return invalidParams("cwd must be an absolute path")
	}
	var after *listCursor
	if p.Cursor != nil {
		text, err := base64.RawURLEncoding.DecodeString(*p.Cursor)
		if err != nil || json.Unmarshal(text, &after) != nil || after == nil {
			return invalidParams("cursor is none that session/list gave")
		}
	}
	all, err := c.sessions(ctx, p.Cwd)
	if err != nil {
		return err
	}
	if after != nil {
		all = slices.DeleteFunc(all, func(m subjects.SessionMeta) bool {
			return newestFirst(m, subjects.SessionMeta{Session: after.Session, Created: after.Created}) <= 0
		})
	}
	answered := struct {
		Sessions   []sessionInfo `json:"sessions"`
		NextCursor string        `json:"nextCursor,omitempty"`
	}{Sessions: []sessionInfo{}}
	for _, m := range all[:min(len(all), listPage)] {
		info := sessionInfo{
			ID: m.Session, Cwd: m.Cwd, AdditionalDirectories: m.AdditionalDirectories, Title: m.Title,
			UpdatedAt: c.lastChange(ctx, m),
			Meta:      map[string]string{raiderKey: cmp.Or(m.Slot, string(m.Raider)), "raiderfleet/state": string(m.State)},
		}
		answered.Sessions = append(answered.Sessions, info)
	}
	if len(all) > listPage {
		last := all[listPage-1]
		text, err := json.Marshal(listCursor{Created: last.Created, Session: last.Session})
		if err != nil {
			return err
		}
		answered.NextCursor = base64.RawURLEncoding.EncodeToString(text)
	}
	answer(c.log, r, answered)
	return nil
}

// sessions are the records of the principal's sessions, newest first, of one directory if
// cwd is given.
func (c *conn) sessions(ctx context.Context, cwd *string) ([]subjects.SessionMeta, error) {
	var records []bus.Record
	err := c.f.retry(ctx, func(ctx context.Context) error {
		var err error
		records, err = c.f.b.List(ctx, c.f.fleet.SessionsBucket(), subjects.MetaFilter(c.principal))
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []subjects.SessionMeta
	for _, rec := range records {
		var m subjects.SessionMeta
		if json.Unmarshal(rec.Value, &m) != nil || m.State == subjects.SessionDeleted || cwd != nil && m.Cwd != *cwd {
			continue
		}
		all = append(all, m)
	}
	slices.SortFunc(all, newestFirst)
	return all, nil
}

func newestFirst(a, b subjects.SessionMeta) int {
	return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Session, b.Session))
}

// lastChange is when something happened in the session: its last event, or what its record
// says, once its events have gone.
func (c *conn) lastChange(ctx context.Context, m subjects.SessionMeta) time.Time {
	ctx, cancel := c.f.b.Bound(ctx, c.f.b.AckWait()/3)
	defer cancel()
	last := m.Updated
	for stream, subject := range map[string]string{
		c.f.fleet.EventsStream():     c.f.fleet.Event(m.Session),
		c.f.fleet.TranscriptStream(): c.f.fleet.Transcript(m.Session),
	} {
		if e, err := c.f.b.Last(ctx, stream, subject); err == nil && e.Time.After(last) {
			last = e.Time
		}
	}
	return last.UTC()
}

// entitle gives a session the title that its first prompt makes.
func (a *attachment) entitle(title string) {
	if title == "" {
		return
	}
	_, err := a.c.setState(a.ctx, string(a.session), func(m *subjects.SessionMeta) bool {
		if m.Title != "" || m.State == subjects.SessionDeleted {
			return false
		}
		m.Title = title
		return true
	})
	if err != nil && a.ctx.Err() == nil {
		a.log.Debug("session not entitled", "error", err)
	}
}
