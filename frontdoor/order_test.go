package frontdoor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"raiderfleet/subjects"
)

// parseEvents reads a script: "1.2" is event 2 of epoch 1, "!1.2" an outcome after it,
// "." an event of no owner, "!" an outcome of none.
func parseEvents(t *testing.T, script string) []event {
	t.Helper()
	var out []event
	for i, word := range strings.Fields(script) {
		e := event{seq: uint64(i + 1), header: subjects.EventHeader{Kind: subjects.EventUpdate}}
		number, isOutcome := strings.CutPrefix(word, "!")
		var epoch, n uint64
		if number != "" && number != "." {
			if _, err := fmt.Sscanf(number, "%d.%d", &epoch, &n); err != nil {
				t.Fatalf("%q: %v", word, err)
			}
		}
		if isOutcome {
			e.header.Kind, e.header.LastEpoch, e.header.LastN = subjects.EventOutcome, epoch, n
		} else {
			e.header.Epoch, e.header.N = epoch, n
		}
		out = append(out, e)
	}
	return out
}

func formatEvent(e event) string {
	h := e.header
	switch {
	case h.Kind == subjects.EventOutcome && h.LastEpoch == 0:
		return "!"
	case h.Kind == subjects.EventOutcome:
		return fmt.Sprintf("!%d.%d", h.LastEpoch, h.LastN)
	case h.Epoch == 0:
		return "."
	}
	return fmt.Sprintf("%d.%d", h.Epoch, h.N)
}

func TestOrder(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, in, out string
		end           string // what comes when the stream has no more: settle, then skip
	}{
		{"in order", "1.1 1.2 !1.2 1.3", "1.1 1.2 !1.2 1.3", ""},
		{"second copies", "1.1 1.2 1.1 1.2 1.3 1.2", "1.1 1.2 1.3", ""},
		{"published again after a failure", "1.1 1.2 1.4 1.5 1.3 1.4 1.5 1.6", "1.1 1.2 1.3 1.4 1.5 1.6", ""},
		{"outcome before its events", "1.1 !1.3 1.2 1.3 1.4", "1.1 1.2 1.3 !1.3 1.4", ""},
		{"outcome before a hole is filled", "1.1 1.3 !1.3 1.2", "1.1 1.2 1.3 !1.3", ""},
		{"next run waits for the outcome's events", "1.1 1.3 !1.3 1.4 1.2", "1.1 1.2 1.3 !1.3 1.4", ""},
		{"lost owner speaks late", "1.1 1.2 5.1 1.3 5.2 1.4", "1.1 1.2 5.1 5.2", ""},
		{"hole of a lost owner", "1.1 1.3 1.4 5.1 1.2", "1.1 1.3 1.4 5.1", ""},
		{"outcome by a new owner that wrote nothing", "1.1 1.2 !5.0 1.3 5.1", "1.1 1.2 !5.0 5.1", ""},
		{"held outcome of a lost owner", "1.1 !1.3 5.1", "1.1 !1.3 5.1", ""},
		{"outcome published again", "1.1 !1.1 1.2 !1.1", "1.1 !1.1 1.2 !1.1", ""},
		{"no owner", ". 1.1 ! .", ". 1.1 ! .", ""},
		{"event gone with age", "1.2 1.3 !1.3", "", "1.2 1.3 !1.3"},
		{"all gone with age", "!4.9", "", "!4.9"},
		{"two held", "1.1 !1.2 !1.4 1.5", "1.1", "!1.2 !1.4 1.5"},
		{"hole at the end", "1.1 1.3", "1.1", "1.3"},
	}
	for _, tc := range cases {
		var o order
		var got []string
		emit := func(e event) { got = append(got, formatEvent(e)) }
		for _, e := range parseEvents(t, tc.in) {
			o.add(e, emit)
		}
		if s := strings.Join(got, " "); s != tc.out {
			t.Errorf("%s: got %q, want %q", tc.name, s, tc.out)
		}
		got = nil
		o.settle(emit)
		o.skip(emit)
		if s := strings.Join(got, " "); s != tc.end {
			t.Errorf("%s: at the end got %q, want %q", tc.name, s, tc.end)
		}
		if o.waiting() {
			t.Errorf("%s: something is left", tc.name)
		}
	}
}

func TestOrderTakesOverAnEpoch(t *testing.T) {
	t.Parallel()
	var o order
	var got []string
	emit := func(e event) { got = append(got, formatEvent(e)) }
	for _, e := range parseEvents(t, "1.1 1.3") {
		o.add(e, emit)
	}
	// Answered from a record: what a lost owner sends later is not shown.
	o.take(5, 2, emit)
	for _, e := range parseEvents(t, "1.2 1.4 5.1 5.2 5.3") {
		o.add(e, emit)
	}
	if s := strings.Join(got, " "); s != "1.1 1.3 5.3" {
		t.Errorf("got %q", s)
	}
}

func TestOrderWithoutABase(t *testing.T) {
	t.Parallel()
	cases := []struct{ in, out string }{
		{"! 7.57 7.58 !7.58 7.57", "! 7.57 7.58 !7.58"},
		{"!7.58 7.59 7.58", "!7.58 7.59"},
		{". 7.1 7.2", ". 7.1 7.2"},
		{"7.57 7.59 7.58 9.1", "7.57 7.58 7.59 9.1"},
	}
	for _, tc := range cases {
		o := order{unknown: true}
		var got []string
		for _, e := range parseEvents(t, tc.in) {
			o.add(e, func(e event) { got = append(got, formatEvent(e)) })
		}
		if s := strings.Join(got, " "); s != tc.out {
			t.Errorf("%q: got %q, want %q", tc.in, s, tc.out)
		}
	}
	var o order
	var got []string
	emit := func(e event) { got = append(got, formatEvent(e)) }
	for _, e := range parseEvents(t, "7.57 7.58 7.60") {
		o.add(e, emit)
	}
	o.adopt(emit)
	if s := strings.Join(got, " "); s != "7.57 7.58" {
		t.Errorf("adopted %q", s)
	}
}

// Whatever happens to a run's publishes, a reader sees each event once and in order, and
// the outcome after the last.
func TestOrderOfAnyRepetition(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var script []string
		n := 1 + r.IntN(20)
		// A window is published; what follows a failure is published again, in order.
		for next := 1; next <= n; {
			end := min(n, next+r.IntN(6))
			first := 0
			for i := next; i <= end; i++ {
				if r.IntN(4) == 0 {
					if first == 0 {
						first = i
					}
					continue // lost
				}
				script = append(script, fmt.Sprintf("3.%d", i))
			}
			if first == 0 {
				next = end + 1
				continue
			}
			for i := first; i <= end; i++ {
				script = append(script, fmt.Sprintf("3.%d", i))
			}
			next = end + 1
		}
		at := len(script) - r.IntN(min(3, len(script)))
		script = append(script[:at:at], append([]string{fmt.Sprintf("!3.%d", n)}, script[at:]...)...)
		var o order
		var got []string
		for _, e := range parseEvents(t, strings.Join(script, " ")) {
			o.add(e, func(e event) { got = append(got, formatEvent(e)) })
		}
		var want []string
		for i := 1; i <= n; i++ {
			want = append(want, fmt.Sprintf("3.%d", i))
		}
		want = append(want, fmt.Sprintf("!3.%d", n))
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("seed %d: %v became %v", seed, script, got)
		}
	}
}
