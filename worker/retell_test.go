package worker

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// transcript reads the session's entries.
func (s *session) transcript() []subjects.TranscriptEntry {
	s.f.t.Helper()
	var out []subjects.TranscriptEntry
	for from := uint64(1); ; {
		m, err := s.f.b.Next(s.f.t.Context(), s.f.f.TranscriptStream(), s.f.f.Transcript(s.meta.Session), from)
		if err != nil {
			return out
		}
		body, err := s.f.b.Body(s.f.t.Context(), m.Header.Get(subjects.HeaderPayload), m.Data)
		if err != nil {
			s.f.t.Fatal(err)
		}
		var e subjects.TranscriptEntry
		if err := json.Unmarshal(body, &e); err != nil {
			s.f.t.Fatal(err)
		}
		out = append(out, e)
		from = m.Seq + 1
	}
}

// texts is what an entry holds, by kind.
func texts(e subjects.TranscriptEntry) string {
	var out []string
	for _, raw := range e.Updates {
		var u struct {
			Update struct {
				Kind    string `json:"sessionUpdate"`
				Content struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"update"`
		}
		_ = json.Unmarshal(raw, &u)
		kind, _, _ := strings.Cut(u.Update.Kind, "_")
		out = append(out, kind+" "+u.Update.Content.Text)
	}
	return strings.Join(out, "|")
}

// leftBy stores an event of a run as its worker did before it was lost.
func (s *session) leftBy(o subjects.Owner, p subjects.PromptID, n uint64, kind subjects.EventKind, body string) {
	s.f.t.Helper()
	h := subjects.EventHeader{Kind: kind, Prompt: p, Epoch: o.Epoch, N: n, Worker: o.Instance}
	if _, err := s.f.b.Publish(s.f.t.Context(), &nats.Msg{Subject: s.f.f.Event(s.meta.Session), Header: h.Header(), Data: []byte(body)}); err != nil {
		s.f.t.Fatal(err)
	}
}

// The transcript holds what a lost worker's run had said: the next owner writes it from
// the events, in their order and each once.
func TestALostRunIsRetold(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	w := f.run(func(c *Config) { c.IdleTTL = time.Millisecond })
	s := f.session(nil)
	f.want(s.prompt("say before"), subjects.RunCompleted, "", 10*time.Second)
	natstest.Eventually(t, 10*time.Second, "the lane let go", func() (bool, any) { return w.tableSize() == 0, w.tableSize() })

	p, _ := s.store("note ran")
	dead, _ := s.deadClaim()
	f.putRecord(p, s.runningUnder(dead, 1))
	chunk := func(text string) string {
		return string(subjects.TextChunk(s.meta.Session, "agent_message_chunk", "", text))
	}
	s.leftBy(dead, p, 1, subjects.EventUser, `{"prompt":[{"type":"text","text":"lost"}]}`)
	s.leftBy(dead, p, 3, subjects.EventUpdate, chunk("c"))
	s.leftBy(dead, p, 2, subjects.EventUpdate, chunk("a")+"\n"+chunk("b"))
	s.leftBy(dead, p, 3, subjects.EventUpdate, chunk("c"))
	s.leftBy(dead, "", 4, subjects.EventUpdate, chunk("between turns"))
	s.baton()
	f.want(p, subjects.RunFailed, "was lost", 20*time.Second)
	after := s.prompt("say after")
	f.want(after, subjects.RunCompleted, "", 10*time.Second)
	natstest.Eventually(t, 10*time.Second, "three entries", func() (bool, any) { return len(s.transcript()) == 3, s.transcript() })
	all := s.transcript()
	for i, want := range []string{"user say before|agent before", "user lost|agent abc", "user say after|agent after"} {
		if got := texts(all[i]); got != want {
			t.Errorf("entry %d: %s, want %s", i, got, want)
		}
	}
	if lost := all[1]; lost.Outcome == nil || lost.Outcome.State != subjects.RunFailed || lost.First <= all[0].Last || lost.Last >= all[2].First {
		t.Errorf("entry of the lost run: %+v", lost)
	}
	if len(f.notes("ran")) != 0 {
		t.Error("it was run again")
	}
}

// A run whose entry was written before its worker died is not told twice, and one that was
// cancelled before it ran has nothing to tell.
func TestWhatIsToldIsNotRetold(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Second)
	s := f.session(nil)
	told, _ := s.store("note ran")
	never, _ := s.store("note ran")
	dead, _ := s.deadClaim()
	r := s.runningUnder(dead, 1)
	s.leftBy(dead, told, 1, subjects.EventUser, `{"prompt":[{"type":"text","text":"told"}]}`)
	body, err := json.Marshal(subjects.TranscriptEntry{Prompt: told, First: 1, Last: 2})
	if err != nil {
		t.Fatal(err)
	}
	h := nats.Header{}
	h.Set(subjects.HeaderPrompt, string(told))
	if _, err := f.b.Publish(t.Context(), &nats.Msg{Subject: f.f.Transcript(s.meta.Session), Header: h, Data: body}); err != nil {
		t.Fatal(err)
	}
	for p, state := range map[subjects.PromptID]subjects.RunState{told: subjects.RunCompleted, never: subjects.RunCancelled} {
		r.State, r.Ended, r.Outcome = state, time.Now(), &subjects.Outcome{Prompt: p, State: state}
		f.putRecord(p, r)
	}
	f.run(nil)
	s.baton()
	s.emptied()
	if all := s.transcript(); len(all) != 1 {
		t.Errorf("%d entries: %+v", len(all), all)
	}
}
