package subjects

import (
	"regexp"
	"testing"
)

// bucketKey is what a NATS bucket takes as a key.
var bucketKey = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

func checkKeys(t *testing.T, p PromptID, who Principal, s SessionID, a AskID, i Instance) {
	t.Helper()
	for _, key := range []string{RunKey(p), CancelKey(p), MetaKey(who, s), AgentKey(who, s), AskKey(s, a), NodeKey(i), SweepKey} {
		if !bucketKey.MatchString(key) {
			t.Errorf("%q is no key", key)
		}
	}
	if got, cancel, err := ParseRunKey(RunKey(p)); got != p || cancel || err != nil {
		t.Errorf("ParseRunKey(%q) = %q, %v, %v", RunKey(p), got, cancel, err)
	}
	if got, cancel, err := ParseRunKey(CancelKey(p)); got != p || !cancel || err != nil {
		t.Errorf("ParseRunKey(%q) = %q, %v, %v", CancelKey(p), got, cancel, err)
	}
	for key, want := range map[string]string{MetaKey(who, s): "meta", AgentKey(who, s): "agent"} {
		if gotP, gotS, part, err := ParseSessionKey(key); gotP != who || gotS != s || part != want || err != nil {
			t.Errorf("ParseSessionKey(%q) = %q, %q, %q, %v", key, gotP, gotS, part, err)
		}
	}
	if gotS, gotA, err := ParseAskKey(AskKey(s, a)); gotS != s || gotA != a || err != nil {
		t.Errorf("ParseAskKey(%q) = %q, %q, %v", AskKey(s, a), gotS, gotA, err)
	}
	if got, err := ParseNodeKey(NodeKey(i)); got != i || err != nil {
		t.Errorf("ParseNodeKey(%q) = %q, %v", NodeKey(i), got, err)
	}
}

// checkKey checks that a key is either refused with empty values or is what its parts build.
func checkKey(t *testing.T, key string) {
	t.Helper()
	p, cancel, err := ParseRunKey(key)
	switch {
	case err != nil && (p != "" || cancel):
		t.Errorf("ParseRunKey(%q) = %q, %v beside an error", key, p, cancel)
	case err == nil && key != RunKey(p) && key != CancelKey(p):
		t.Errorf("ParseRunKey(%q) = %q, %v", key, p, cancel)
	}
	who, s, part, err := ParseSessionKey(key)
	switch {
	case err != nil && string(who)+string(s)+part != "":
		t.Errorf("ParseSessionKey(%q) = %q, %q, %q beside an error", key, who, s, part)
	case err == nil && key != MetaKey(who, s) && key != AgentKey(who, s):
		t.Errorf("ParseSessionKey(%q) = %q, %q, %q", key, who, s, part)
	}
	s, a, err := ParseAskKey(key)
	switch {
	case err != nil && string(s)+string(a) != "":
		t.Errorf("ParseAskKey(%q) = %q, %q beside an error", key, s, a)
	case err == nil && key != AskKey(s, a):
		t.Errorf("ParseAskKey(%q) = %q, %q", key, s, a)
	}
	if i, err := ParseNodeKey(key); (err == nil && key != NodeKey(i)) || (err != nil && i != "") {
		t.Errorf("ParseNodeKey(%q) = %q, %v", key, i, err)
	}
}

func badKeys() []string {
	return append(refused(), "p1.x", ".cancel", "p1.cancel.cancel", "local.s1", "local.s1.", "local.s1.other", "local.s1.meta.x", "..meta", "s1.k1.x", SweepKey)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	checkKeys(t, "p1", "local", "s1", "k1", "w1-abc")
	checkKeys(t, "cancel", "meta", "agent", "lease", "sweep")
	if MetaFilter("local") != "local.*.meta" || AskFilter("s1") != "s1.*" {
		t.Errorf("filters %q, %q", MetaFilter("local"), AskFilter("s1"))
	}
	if MetaAllFilter() != "*.*.meta" || MetaOfFilter("s1") != "*.s1.meta" || AgentAllFilter() != "*.*.agent" || AskOfFilter("k1") != "*.k1" {
		t.Errorf("filters %q, %q, %q, %q", MetaAllFilter(), MetaOfFilter("s1"), AgentAllFilter(), AskOfFilter("k1"))
	}
	for _, key := range badKeys() {
		checkKey(t, key)
	}
	if i, err := ParseNodeKey(SweepKey); err == nil {
		t.Errorf("the sweeper's lease is no node: %q", i)
	}
}

func FuzzKeys(f *testing.F) {
	for _, key := range append(badKeys(), "p1", "p1.cancel", "local.s1.meta", "local.s1.agent", "s1.k1") {
		f.Add(key, "p1")
	}
	f.Fuzz(func(t *testing.T, key, word string) {
		checkKey(t, key)
		p, who, s, a, i := PromptID("p1"), LocalPrincipal, SessionID("s1"), AskID("k1"), Instance("w1")
		keep(&p, word, ParsePrompt)
		keep(&who, word, ParsePrincipal)
		keep(&s, word, ParseSession)
		keep(&a, word, ParseAsk)
		keep(&i, word, ParseInstance)
		checkKeys(t, p, who, s, a, i)
	})
}
