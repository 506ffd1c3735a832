package subjects

import (
	"math"
	"testing"

	"github.com/nats-io/nats.go"
)

func promptHeaders() []PromptHeader {
	h := PromptHeader{Prompt: "p1", Session: "s1", Principal: "local", Origin: Origin{"fd-abc", "a1"}, Kind: KindPrompt, Priority: "normal"}
	open, large, unknown, doorOnly, able := h, h, h, h, h
	able.Client = `{"fs":{"readTextFile":true},"_meta":{"ä":" \u000a x "}}`
	open.Kind = KindOpen
	large.Payload = "p1"
	unknown.Origin = Origin{}
	doorOnly.Origin.Attachment = ""
	return []PromptHeader{h, open, large, unknown, doorOnly, able}
}

func eventHeaders() []EventHeader {
	return []EventHeader{
		{Kind: EventUpdate, Prompt: "p1", Epoch: 7, N: 1, Worker: "w1-abc"},
		{Kind: EventOutcome, Prompt: "p1", LastEpoch: 7, LastN: 12, Worker: "w1-abc"},
		{Kind: EventOutcome, Prompt: "p1"},
		{Kind: EventUpdate, Epoch: math.MaxUint64, N: math.MaxUint64, Payload: "p1.7.1"},
		{Kind: "from a newer version"},
	}
}

// sent is the header after a way over the wire.
func sent(t *testing.T, h nats.Header) nats.Header {
	t.Helper()
	lines := "NATS/1.0\r\n"
	for name, values := range h {
		for _, v := range values {
			lines += name + ": " + v + "\r\n"
		}
	}
	got, err := nats.DecodeHeadersMsg([]byte(lines + "\r\n"))
	if err != nil {
		t.Fatalf("%v: %v", h, err)
	}
	return got
}

func TestPromptHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	for _, h := range promptHeaders() {
		if got, err := ParsePromptHeader(sent(t, h.Header())); err != nil || got != h {
			t.Errorf("%+v became %+v, %v", h, got, err)
		}
	}
}

func TestEventHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	for _, h := range eventHeaders() {
		if got, err := ParseEventHeader(sent(t, h.Header())); err != nil || got != h {
			t.Errorf("%+v became %+v, %v", h, got, err)
		}
	}
}

func TestHeadersRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{HeaderPrompt, HeaderSession, HeaderPrincipal, HeaderOrigin, HeaderKind} {
		for _, bad := range []string{"a.b", "*", "a b c", "é", "a,b"} {
			n := promptHeaders()[0].Header()
			n.Set(name, bad)
			if h, err := ParsePromptHeader(n); err == nil || h != (PromptHeader{}) {
				t.Errorf("%s: %q: %+v, %v", name, bad, h, err)
			}
		}
	}
	for _, name := range []string{HeaderPrompt, HeaderSession, HeaderPrincipal, HeaderKind} {
		n := promptHeaders()[0].Header()
		n.Del(name)
		if h, err := ParsePromptHeader(n); err == nil || h != (PromptHeader{}) {
			t.Errorf("without %s: %+v, %v", name, h, err)
		}
	}
	for _, name := range []string{HeaderPrompt, HeaderWorker, HeaderEpoch, HeaderN, HeaderLastEpoch, HeaderLastN} {
		for _, bad := range []string{"a.b", "-1.", " 1", "1.e3", "18446744073709551616.", "é"} {
			n := eventHeaders()[0].Header()
			n.Set(name, bad)
			if h, err := ParseEventHeader(n); err == nil || h != (EventHeader{}) {
				t.Errorf("%s: %q: %+v, %v", name, bad, h, err)
			}
		}
	}
	if h, err := ParseEventHeader(nil); err == nil || h != (EventHeader{}) {
		t.Errorf("no header: %+v, %v", h, err)
	}
	if h, err := ParsePromptHeader(nil); err == nil || h != (PromptHeader{}) {
		t.Errorf("no header: %+v, %v", h, err)
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("p1", "s1", "local", "fd-abc a1", "prompt", "normal", "p1", "7", "12", "w1-abc")
	f.Add("", "", "", " ", "", "", "", "", "", "")
	f.Add("a.b", "*", ">", "a b c", "open", "\r\n", "é", "-1", "1e9", "18446744073709551616")
	f.Fuzz(func(t *testing.T, prompt, session, principal, origin, kind, priority, payload, epoch, n, worker string) {
		h := nats.Header{}
		for name, v := range map[string]string{
			HeaderPrompt: prompt, HeaderSession: session, HeaderPrincipal: principal, HeaderOrigin: origin, HeaderKind: kind,
			HeaderPriority: priority, HeaderPayload: payload, HeaderEpoch: epoch, HeaderN: n, HeaderLastEpoch: n,
			HeaderLastN: epoch, HeaderWorker: worker,
		} {
			h.Set(name, v)
		}
		p, err := ParsePromptHeader(h)
		switch {
		case err != nil && p != (PromptHeader{}):
			t.Errorf("%v: %+v beside %v", h, p, err)
		case err == nil && (!isToken(string(p.Prompt)) || !isToken(string(p.Session)) || !isToken(string(p.Principal))):
			t.Errorf("%v was accepted: %+v", h, p)
		case err == nil && p.Origin.FrontDoor != "":
			if again, err := ParsePromptHeader(p.Header()); err != nil || again != p {
				t.Errorf("%+v became %+v, %v", p, again, err)
			}
		}
		e, err := ParseEventHeader(h)
		switch {
		case err != nil && e != (EventHeader{}):
			t.Errorf("%v: %+v beside %v", h, e, err)
		case err == nil && (e.Prompt != "" && !isToken(string(e.Prompt)) || e.Worker != "" && !isToken(string(e.Worker))):
			t.Errorf("%v was accepted: %+v", h, e)
		case err == nil:
			if again, err := ParseEventHeader(e.Header()); err != nil || again != e {
				t.Errorf("%+v became %+v, %v", e, again, err)
			}
		}
	})
}
