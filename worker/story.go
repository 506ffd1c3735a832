package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/rawjson"
	"raiderfleet/subjects"
)

// story gathers what a run adds to the conversation, compacted: consecutive chunks of
// one message become one. It goes to TRANSCRIPT when the run has ended; until then, and
// if the worker is lost before, EVENTS has it all.
type story struct {
	storing sync.Mutex // held while a part is stored

	mu      sync.Mutex // guards the rest
	entry   subjects.TranscriptEntry
	session subjects.SessionID
	text    []byte // of the chunk that grows, decoded
	kind    string // its kind; empty when the last update is no plain chunk
	id      string // its messageId
	size    int    // of the entry's updates, in bytes
}

// maxStory bounds what a story holds in memory, in bytes, but for one update more. What is
// beyond it goes to PAYLOADS in parts.
const maxStory = 4 << 20

// maxChunk bounds the text that chunks are merged to: a client takes lines of a megabyte or
// so, and a turn may be of any length.
const maxChunk = 256 << 10

// chunk is an update that can be merged: nothing in it but these members.
type chunk struct {
	Kind    string
	Text    string
	Message string
}

func newStory(h subjects.PromptHeader, blocks json.RawMessage) *story {
	s := &story{session: h.Session, entry: subjects.TranscriptEntry{Prompt: h.Prompt}}
	var list []json.RawMessage
	_ = json.Unmarshal(blocks, &list) // the front door checked that it is an array
	for _, b := range list {
		s.addLocked(subjects.UserChunk(h.Session, b)) // nobody else has it yet
	}
	return s
}

func (s *story) addLocked(params json.RawMessage) {
	s.entry.Updates = append(s.entry.Updates, params)
	s.size += len(params)
}

// first notes the EVENTS sequence at which the run begins.
func (s *story) first(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entry.First = seq
}

// begin is the EVENTS sequence at which the run begins.
func (s *story) begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entry.First
}

// reached notes the EVENTS sequence up to which events are stored.
func (s *story) reached(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entry.Last = max(s.entry.Last, seq)
}

// tell adds the params of a session/update, and stores a part of the story when it has got
// long. It blocks for that, as the raider's pipe does.
func (s *story) tell(l *lane, params json.RawMessage) {
	s.update(params)
	s.storing.Lock() // what has been taken out is waited for by write
	defer s.storing.Unlock()
	if part := s.part(); part != nil {
		s.store(l, part)
	}
}

// part takes what there is out of a story that has got long; nil when it has not.
func (s *story) part() []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size < maxStory {
		return nil
	}
	part := s.entry.Updates
	s.entry.Updates, s.size = nil, 0
	return part
}

// store stores a part. One that is refused, and would be again, is told as missing. What a
// worker that is lost has stored goes with the session.
func (s *story) store(l *lane, part []json.RawMessage) {
	body, err := json.Marshal(part)
	if err != nil {
		return // they came as JSON
	}
	s.mu.Lock()
	name := fmt.Sprintf("transcript.%s.%s.%d.%d", s.session, s.entry.Prompt, l.owner().Epoch, len(s.entry.Parts)+1)
	s.mu.Unlock()
	err = l.do(func(context.Context) error {
		return l.w.b.PutPayload(l.ctx, name, body) //nolint:contextcheck // longer than one request
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.entry.Parts = append(s.entry.Parts, name)
	case l.ctx.Err() == nil:
		l.w.log.Error("a part of a transcript is not stored", "session", string(s.session), "bytes", len(body), "error", err)
		s.addLocked(unstored(s.session, subjects.EventUpdate, len(body)))
	}
}

// update adds the params of a session/update.
func (s *story) update(params json.RawMessage) {
	c, plain := asChunk(params)
	s.mu.Lock()
	defer s.mu.Unlock()
	if plain && s.kind == c.Kind && s.id == c.Message && len(s.text)+len(c.Text) <= maxChunk {
		s.text = append(s.text, c.Text...)
		return
	}
	s.closeChunkLocked()
	if plain {
		s.kind, s.id, s.text = c.Kind, c.Message, []byte(c.Text)
		return
	}
	s.addLocked(append(json.RawMessage(nil), params...))
}

func (s *story) closeChunkLocked() {
	if s.kind == "" {
		return
	}
	s.addLocked(subjects.TextChunk(s.session, s.kind, s.id, string(s.text)))
	s.kind, s.id, s.text = "", "", nil
}

// asChunk says whether params is nothing but a text chunk.
func asChunk(params json.RawMessage) (chunk, bool) {
	var c chunk
	var update, content []byte
	members, plain := 0, true
	// Every update of every raider passes here: no decoding beyond the strings.
	err := rawjson.Scan(params, func(key, value []byte) {
		members++
		if rawjson.KeyIs(key, "update") {
			update = value
		}
	})
	if err != nil || members != 2 || update == nil { // sessionId, update
		return c, false
	}
	err = rawjson.Scan(update, func(key, value []byte) {
		switch {
		case rawjson.KeyIs(key, "sessionUpdate"):
			plain = asString(value, &c.Kind) && plain
		case rawjson.KeyIs(key, "messageId"):
			plain = asString(value, &c.Message) && plain
		case rawjson.KeyIs(key, "content"):
			content = value
		default:
			plain = false
		}
	})
	if err != nil || !plain || content == nil {
		return c, false
	}
	var kind string
	err = rawjson.Scan(content, func(key, value []byte) {
		switch {
		case rawjson.KeyIs(key, "type"):
			plain = asString(value, &kind) && plain
		case rawjson.KeyIs(key, "text"):
			plain = asString(value, &c.Text) && plain
		default:
			plain = false
		}
	})
	if err != nil || !plain || kind != "text" {
		return c, false
	}
	switch c.Kind {
	case "agent_message_chunk", "agent_thought_chunk", "user_message_chunk":
		return c, true
	}
	return c, false
}

// asString reads a JSON string; false when value is none.
func asString(value []byte, to *string) bool {
	if len(value) < 2 || value[0] != '"' {
		return false
	}
	*to = rawjson.Unquote(value)
	return true
}

// write stores the entry. outcome is the EVENTS sequence of the run's outcome.
func (s *story) write(l *lane, outcome uint64, out *subjects.Outcome) error {
	s.storing.Lock()
	defer s.storing.Unlock()
	s.mu.Lock()
	s.closeChunkLocked()
	if s.entry.Updates == nil {
		s.entry.Updates = []json.RawMessage{}
	}
	s.entry.Last = max(s.entry.Last, outcome)
	s.entry.Outcome = out
	body, err := json.Marshal(s.entry)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	h := nats.Header{}
	h.Set(subjects.HeaderPrompt, string(out.Prompt))
	return l.do(func(ctx context.Context) error {
		data := body
		if len(data) > l.w.b.MaxInline() {
			name := fmt.Sprintf("transcript.%s.%s", s.session, out.Prompt)
			if err := l.w.b.PutPayload(l.ctx, name, data); err != nil { //nolint:contextcheck // longer than one request
				return err
			}
			h.Set(subjects.HeaderPayload, name)
			data = nil
		}
		m := &nats.Msg{Subject: l.w.fleet.Transcript(s.session), Header: h, Data: data}
		_, err := l.w.b.Publish(ctx, m, jetstream.WithMsgID(string(out.Prompt)+".transcript"))
		return err
	})
}
