package admin

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

const askRequest = `{"sessionId":"s","toolCall":{"toolCallId":"t","title":"Run\u001b[31m make","kind":"execute"},"options":[
 {"optionId":"yes","name":"Allow once","kind":"allow_once"},{"optionId":"ever","name":"Always","kind":"allow_always"},
 {"optionId":"no","name":"Reject","kind":"reject_once"}]}`

func (w *world) ask(s subjects.SessionID, request string) subjects.AskBody {
	w.t.Helper()
	lane, err := subjects.SlotLane("1bjorn")
	if err != nil {
		w.t.Fatal(err)
	}
	b := subjects.AskBody{
		Ask: subjects.NewAsk(), Session: s, Principal: "ada", Raider: "bjorn", Lane: lane, Prompt: subjects.NewPrompt(),
		Request: json.RawMessage(request), Time: time.Now(), Deadline: time.Now().Add(time.Minute),
	}
	if _, err := w.b.SetJSON(w.t.Context(), w.b.Fleet().AsksBucket(), subjects.AskKey(s, b.Ask), b, 0); err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) respond(m *nats.Msg, text string) {
	if err := m.Respond([]byte(text)); err != nil {
		w.t.Error(err)
	}
}

func TestAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if asks, err := w.f.Asks(t.Context()); err != nil || asks == nil || len(asks) != 0 {
		t.Fatalf("none: %+v, %v", asks, err)
	}
	s := subjects.NewSession()
	first, second := w.ask(s, askRequest), w.ask(s, `{"options":[]}`)
	asks, err := w.f.Asks(t.Context())
	if err != nil || len(asks) != 2 || asks[0].Ask != first.Ask || asks[1].Ask != second.Ask {
		t.Fatalf("got %+v, %v", asks, err)
	}
	if a := asks[0]; a.Kind != "execute" || len(a.Options) != 3 || a.Options[0] != (AskOption{"yes", "Allow once", "allow_once"}) || a.Deadline.IsZero() || a.Principal != "ada" {
		t.Errorf("got %+v", a)
	}
	var b strings.Builder
	if err := WriteAsks(&b, asks, time.Now()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "Run [31m make") || !strings.Contains(b.String(), "yes,ever,no") || strings.Contains(b.String(), "\x1b") {
		t.Errorf("the table is\n%s", b.String())
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := subjects.NewSession()
	for word, want := range map[string]string{
		"yes": "yes", "allow": "yes", "allow_always": "ever", "reject": "no", "reject_once": "no", "ever": "ever",
	} {
		asked := w.ask(s, askRequest)
		tries := 0
		sub, err := w.b.Conn().Subscribe(w.b.Fleet().Control(asked.Lane), func(m *nats.Msg) {
			var r subjects.ControlRequest
			if err := json.Unmarshal(m.Data, &r); err != nil || r.Op != subjects.ControlAnswer || r.Ask != asked.Ask ||
				r.Principal != "ada" || r.Prompt != asked.Prompt || string(r.Outcome) != `{"optionId":"`+want+`","outcome":"selected"}` {
				t.Errorf("%s: the owner was asked %s", word, m.Data)
			}
			if tries++; tries == 1 {
				w.respond(m, `{"error":"busy"}`)
				return
			}
			w.respond(m, `{}`)
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.f.Answer(t.Context(), string(asked.Ask), word)
		if err != nil || got.Option != want || got.Session != s {
			t.Errorf("%s: got %+v, %v", word, got, err)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnswerRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := subjects.NewSession()
	asked := w.ask(s, askRequest)
	for _, tt := range []struct {
		ask, option string
		want        error
	}{
		{"nobody", "allow", ErrNoAsk},
		{"no ask", "allow", ErrNoAsk},
		{string(asked.Ask), "perhaps", ErrNotOffered},
		{string(w.ask(s, `{"options":[{"optionId":"a","kind":"allow_once"}]}`).Ask), "reject", ErrNotOffered},
	} {
		if _, err := w.f.Answer(t.Context(), tt.ask, tt.option); !errors.Is(err, tt.want) {
			t.Errorf("%s %s: %v", tt.ask, tt.option, err)
		}
	}
	w.answer(w.b.Fleet().Control(asked.Lane), func(m *nats.Msg) { w.respond(m, `{"decided":true}`) })
	if _, err := w.f.Answer(t.Context(), string(asked.Ask), "allow"); !errors.Is(err, ErrDecided) {
		t.Errorf("decided by another: %v", err)
	}
	if err := w.b.Delete(t.Context(), w.b.Fleet().AsksBucket(), subjects.AskKey(s, asked.Ask)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.f.Answer(t.Context(), string(asked.Ask), "allow"); !errors.Is(err, ErrDecided) {
		t.Errorf("decided before: %v", err)
	}
}
