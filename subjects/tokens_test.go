package subjects

import (
	"errors"
	"strings"
	"testing"
)

// tokenParser is a token parser without its type.
type tokenParser struct {
	name  string
	max   int
	parse func(string) (string, error)
}

func plain[T ~string](parse func(string) (T, error)) func(string) (string, error) {
	return func(s string) (string, error) {
		v, err := parse(s)
		return string(v), err
	}
}

func tokenParsers() []tokenParser {
	return []tokenParser{
		{"fleet", 128, plain(ParseFleet)}, {"raider", 128, plain(ParseRaider)}, {"lane", 128, plain(ParseLane)},
		{"session", 123, plain(ParseSession)}, {"prompt", 128, plain(ParsePrompt)},
		{"principal", 128, plain(ParsePrincipal)}, {"instance", 128, plain(ParseInstance)},
		{"attachment", 128, plain(ParseAttachment)}, {"class", 128, plain(ParseClass)}, {"ask", 128, plain(ParseAsk)},
	}
}

// isToken says the rule again, in another way than the code does.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func checkTokens(t *testing.T, s string) {
	t.Helper()
	for _, p := range tokenParsers() {
		got, err := p.parse(s)
		switch {
		case err != nil && got != "":
			t.Errorf("%s %q: refused, yet %q was returned", p.name, s, got)
		case err != nil && !errors.Is(err, ErrToken):
			t.Errorf("%s %q: %v is not ErrToken", p.name, s, err)
		case err != nil && len(err.Error()) > 1000:
			t.Errorf("%s: an error text of %d bytes", p.name, len(err.Error()))
		case err == nil && (got != s || !isToken(s) || len(s) > p.max):
			t.Errorf("%s %q was accepted as %q", p.name, s, got)
		case err != nil && isToken(s) && len(s) <= p.max && p.name != "raider" && p.name != "lane":
			t.Errorf("%s %q was refused: %v", p.name, s, err)
		}
	}
	if session, err := ParseSession(s); err == nil {
		if _, err := ParseLane(string(SessionLane(session))); err != nil {
			t.Errorf("the lane of session %q: %v", s, err)
		}
	}
	if lane, err := SlotLane(s); err == nil {
		raider, ok := IsSlot(s)
		if slot, isSlot := lane.Slot(); !ok || !isSlot || slot != s || raider == "" || strings.ContainsAny(raider[:1], "0123456789-_") {
			t.Errorf("slot %q: lane %q, raider %q", s, lane, raider)
		}
		if _, err := ParseRaider(raider); err != nil {
			t.Errorf("slot %q is a seat of %q: %v", s, raider, err)
		}
	}
}

func refused() []string {
	return []string{
		"", ".", "a.b", ".a", "a.", " ", "a b", " a", "a ", "\t", "a\n", "\na", "a\r", "a\x00", "\x7f", "*", ">", "a*", "a>",
		"-a", "_a", "é", "aé", "日本", "a\u00a0", "a\u200b", "\xff", "a/b", `a\b`, "a:b", "a,b", "a=b", "$KV", "a@b", "a+b", "a%20b",
		strings.Repeat("a", 129), strings.Repeat("a", 1<<16),
	}
}

func TestTokensRefused(t *testing.T) {
	t.Parallel()
	for _, s := range refused() {
		checkTokens(t, s)
		for _, p := range tokenParsers() {
			if got, err := p.parse(s); err == nil {
				t.Errorf("%s %q was accepted as %q", p.name, s, got)
			}
		}
	}
}

func TestTokensAccepted(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "A", "0", "a-b_c", "w1-abc", strings.Repeat("a", 123), strings.Repeat("a", 128)} {
		checkTokens(t, s)
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	for s, ok := range map[string]bool{
		"slot-1bjorn": true, "slot-12b-2": true, "sess-s1": true, "sess-S_1": true, "sess-slot-1bjorn": true,
		"slot-": false, "slot-bjorn": false, "slot-1": false, "slot-1Bjorn": false, "slot-1b_c": false, "slot-1-b": false,
		"sess-": false, "sess--a": false, "sess": false, "1bjorn": false, "SLOT-1bjorn": false,
		"sess-" + strings.Repeat("a", 123): true, "sess-" + strings.Repeat("a", 124): false,
	} {
		if l, err := ParseLane(s); (err == nil) != ok || (err != nil && l != "") {
			t.Errorf("ParseLane(%q) = %q, %v", s, l, err)
		}
	}
	if _, ok := SessionLane("s1").Slot(); ok {
		t.Error("a session's lane is no slot's")
	}
	for s, want := range map[string]string{"1bjorn": "bjorn", "012b-c1": "b-c1", "bjorn": "", "1": "", "1Bjorn": "", "1b.c": "", "": ""} {
		if got, ok := IsSlot(s); got != want || ok != (want != "") {
			t.Errorf("IsSlot(%q) = %q, %v", s, got, ok)
		}
	}
}

func TestRaiders(t *testing.T) {
	t.Parallel()
	for s, ok := range map[string]bool{"bjorn": true, "1bjorn": true, "b-2": true, "Bjorn": true, "b_2": true, "_b": false, "-b": false, "b.c": false, "björn": false} {
		if r, err := ParseRaider(s); (err == nil) != ok || (err != nil && r != "") {
			t.Errorf("ParseRaider(%q) = %q, %v", s, r, err)
		}
	}
}

func TestNewIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	fresh := func(id string, err error) {
		t.Helper()
		if err != nil || !isToken(id) || seen[id] {
			t.Errorf("id %q (seen before: %v): %v", id, seen[id], err)
		}
		seen[id] = true
	}
	for range 100 {
		fresh(plain(ParseSession)(string(NewSession())))
		fresh(plain(ParsePrompt)(string(NewPrompt())))
		fresh(plain(ParseAttachment)(string(NewAttachment())))
		fresh(plain(ParseAsk)(string(NewAsk())))
		for _, name := range []string{"w1", strings.Repeat("w", 500)} {
			i, err := NewInstance(name)
			fresh(string(i), err)
		}
	}
	for _, name := range []string{"", "a.b", "a b", "é", strings.Repeat("é", 100)} {
		if i, err := NewInstance(name); !errors.Is(err, ErrToken) || i != "" {
			t.Errorf("NewInstance(%q) = %q, %v", name, i, err)
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, s := range append(refused(), "a", "bjorn", "slot-1bjorn", "sess-s1", "1bjorn", strings.Repeat("a", 123)) {
		f.Add(s)
	}
	f.Fuzz(checkTokens)
}
