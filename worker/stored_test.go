package worker

import (
	"encoding/json"
	"errors"

	"raiderfleet/internal/bus"
	"raiderfleet/subjects"
)

// storedEvent is a message of EVENTS.
type storedEvent struct {
	subjects.EventHeader

	Seq  uint64
	ID   string // its message id
	Body []byte
}

// events reads a session's events as they are stored.
func (s *session) events() []storedEvent {
	s.f.t.Helper()
	var out []storedEvent
	for from := uint64(1); ; {
		m, err := s.f.b.Next(s.f.t.Context(), s.f.f.EventsStream(), s.f.f.Event(s.meta.Session), from)
		if errors.Is(err, bus.ErrNotFound) {
			return out
		}
		if err != nil {
			s.f.t.Fatal(err)
		}
		h, err := subjects.ParseEventHeader(m.Header)
		if err != nil {
			s.f.t.Fatal(err)
		}
		body, err := s.f.b.Body(s.f.t.Context(), h.Payload, m.Data)
		if err != nil {
			s.f.t.Fatal(err)
		}
		out = append(out, storedEvent{EventHeader: h, Seq: m.Seq, ID: m.Header.Get("Nats-Msg-Id"), Body: body})
		from = m.Seq + 1
	}
}

// said is the text of the session's chunks in the order (epoch, n), each once.
func (s *session) said() []string {
	s.f.t.Helper()
	var out []string
	last := [2]uint64{}
	for _, e := range ordered(s.events()) {
		at := [2]uint64{e.Epoch, e.N}
		if e.Kind != subjects.EventUpdate || at == last {
			continue
		}
		last = at
		for line := range subjects.Updates(e.Body) {
			var u struct {
				Update struct {
					Content struct {
						Text string `json:"text"`
					} `json:"content"`
				} `json:"update"`
			}
			if err := json.Unmarshal(line, &u); err != nil {
				s.f.t.Fatal(err)
			}
			out = append(out, u.Update.Content.Text)
		}
	}
	return out
}

func (s *session) kinds() map[subjects.EventKind]int {
	s.f.t.Helper()
	n := map[subjects.EventKind]int{}
	for _, e := range s.events() {
		n[e.Kind]++
	}
	return n
}

// outcomes counts the outcome events of a prompt.
func (s *session) outcomes(p subjects.PromptID) int {
	s.f.t.Helper()
	n := 0
	for _, e := range s.events() {
		if e.Kind == subjects.EventOutcome && e.Prompt == p {
			n++
		}
	}
	return n
}
