package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/subjects"
)

// livePrefix begins the type of what Events passes on of the sessions' own events.
const livePrefix = "live."

// News is an event of the fleet, or with EventOptions.Live one of a session.
type News struct {
	// Type is the kind of a fleet event, or "live." and the kind of a session's.
	Type string
	// Raw is its JSON: a fleet event as it came, else a LiveEvent.
	Raw json.RawMessage
	// Fleet is set for a fleet event.
	Fleet *subjects.FleetEvent
	// Live is set for a session's event.
	Live *LiveEvent
}

// LiveEvent is a stored event of a session, as it is passed on live.
type LiveEvent struct {
	Type    string             `json:"type"`
	Time    time.Time          `json:"time"`
	Session subjects.SessionID `json:"session"`
	Prompt  subjects.PromptID  `json:"prompt,omitempty"`
	Worker  subjects.Instance  `json:"worker,omitempty"`
	// Seq is its sequence in EVENTS.
	Seq uint64 `json:"seq"`
	// Payload names the object that holds Body when that is large.
	Payload string `json:"payload,omitempty"`
	// Body is the event's body; of updates that came together, one each.
	Body []json.RawMessage `json:"body,omitempty"`
}

// EventOptions say what Events passes on.
type EventOptions struct {
	// Prefix of the types that are wanted, such as "raider.". Default all.
	Prefix string
	// Live: the events of all sessions too, what raiders say among them.
	Live bool
}

// newsBuffer is how many events wait for a slow reader before some are lost.
const newsBuffer = 64 << 10

// Events passes on what happens from now on, until ctx ends or show returns an error. It
// blocks. Events may be missed: while the link is down, and when show is slow; lost gets
// their number, as far as it is known.
func (f *Fleet) Events(ctx context.Context, o EventOptions, show func(News) error, lost func(n int)) error {
	messages := make(chan *nats.Msg, newsBuffer)
	fleet := f.b.Fleet()
	topics := []string{fleet.FleetEventAll()}
	if o.Live {
		topics = append(topics, fleet.LiveAll())
	}
	subs := make([]*nats.Subscription, 0, len(topics))
	for _, subject := range topics {
		sub, err := f.b.Conn().ChanSubscribe(subject, messages)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		defer func() { _ = sub.Unsubscribe() }() // the connection's end does it as well
		subs = append(subs, sub)
	}
	bound, cancel := f.b.Bound(ctx, f.b.AckWait()/2)
	err := f.b.Conn().FlushWithContext(bound)
	cancel()
	if err != nil {
		return fmt.Errorf("subscribe to the fleet's events: %w", err)
	}
	dropped := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			n, ok := parseNews(fleet, m)
			if ok && strings.HasPrefix(n.Type, o.Prefix) {
				if err := show(n); err != nil {
					return err
				}
			}
		}
		now := 0
		for _, sub := range subs {
			if n, err := sub.Dropped(); err == nil {
				now += n
			}
		}
		if now > dropped {
			lost(now - dropped)
			dropped = now
		}
	}
}

// parseNews reads a message; false for one that is of no version that we know.
func parseNews(fleet subjects.Fleet, m *nats.Msg) (News, bool) {
	if kind, err := fleet.ParseFleetEvent(m.Subject); err == nil {
		var e subjects.FleetEvent
		if json.Unmarshal(m.Data, &e) != nil {
			return News{}, false
		}
		return News{Type: string(kind), Raw: m.Data, Fleet: &e}, true
	}
	session, err := fleet.ParseLive(m.Subject)
	if err != nil {
		return News{}, false
	}
	h, err := subjects.ParseEventHeader(m.Header)
	if err != nil {
		return News{}, false
	}
	e := LiveEvent{
		Type: livePrefix + string(h.Kind), Session: session, Prompt: h.Prompt, Worker: h.Worker, Payload: h.Payload,
	}
	e.Seq, _ = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64) // 0: an old server
	if e.Time, err = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer)); err != nil {
		e.Time = time.Now()
	}
	for body := range subjects.Updates(m.Data) {
		if json.Valid(body) {
			e.Body = append(e.Body, body)
		}
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return News{}, false
	}
	return News{Type: e.Type, Raw: raw, Live: &e}, true
}

// WriteNews writes an event as a line for a person.
func WriteNews(w io.Writer, n News) error {
	var b strings.Builder
	add := func(name, value string) {
		if value != "" && value != "0" {
			fmt.Fprintf(&b, " %s=%s", name, word(value))
		}
	}
	at := time.Now()
	if e := n.Fleet; e != nil {
		at = e.Time
		add("raider", string(e.Raider))
		if slot, ok := e.Lane.Slot(); ok {
			add("slot", slot)
		}
		add("session", string(e.Session))
		add("prompt", string(e.Prompt))
		add("worker", string(e.Instance))
		add("front_door", string(e.FrontDoor))
		add("host", e.Host)
		add("pid", strconv.Itoa(e.PID))
		if e.Warm {
			add("warm", "true")
		}
		add("place", strconv.Itoa(e.Place))
		add("of", strconv.Itoa(e.Of))
		add("ask", string(e.Ask))
		add("tool", e.Tool)
		add("outcome", string(e.Outcome))
		add("stop_reason", e.StopReason)
		add("binding", e.Binding)
		add("why", e.Why)
		add("by", e.By)
		add("error", e.Error)
		names := make([]string, len(e.Raiders))
		for i, r := range e.Raiders {
			names[i] = string(r)
		}
		add("raiders", strings.Join(names, ","))
	}
	if e := n.Live; e != nil {
		at = e.Time
		add("session", string(e.Session))
		add("prompt", string(e.Prompt))
		for _, body := range e.Body {
			add("body", string(body))
		}
	}
	_, err := fmt.Fprintf(w, "%s %s%s\n", at.Local().Format("15:04:05.000"), n.Type, b.String())
	return err
}

// word is a value that stands in a line: quoted when it could be taken for more than one,
// and without what could change a terminal.
func word(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r > 0x7e }) {
		return strconv.Quote(s)
	}
	return s
}

// tell publishes a fleet event; nothing depends on its arrival.
func (f *Fleet) tell(e subjects.FleetEvent) {
	e.Time = time.Now()
	if body, err := json.Marshal(e); err == nil {
		_ = f.b.Conn().Publish(f.b.Fleet().FleetEvent(e.Kind), body)
	}
}
