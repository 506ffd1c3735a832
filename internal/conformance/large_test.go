package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// Lines far larger than a NATS message go both ways.
func TestLargeLines(t *testing.T) {
	t.Parallel()
	sizes := []int{1, 8, 31}
	if testing.Short() {
		sizes = sizes[:2]
	}
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		session := c.session("")
		for _, mib := range sizes {
			// echo sends the whole text back in one update, and ü is two bytes.
			want := fmt.Sprintf("%d:", mib) + strings.Repeat("ü", mib<<19)
			m, updates := c.turn(session, "echo "+want)
			wantStop(t, m, "end_turn")
			if got := text(updates, "agent_message_chunk"); got != want {
				t.Fatalf("%d MiB: %d bytes came back, want %d", mib, len(got), len(want))
			}
			largest := 0
			for _, u := range updates {
				largest = max(largest, u.size)
			}
			if largest < mib<<20 {
				t.Errorf("%d MiB came back in pieces of at most %d bytes", mib, largest)
			}
		}
		m, updates := c.turn(session, "echo still here")
		wantStop(t, m, "end_turn")
		if got := text(updates, "agent_message_chunk"); got != "still here" {
			t.Errorf("got %q", got)
		}
	})
}

// A raider's error may be larger than a NATS message too.
func TestLargeError(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		c := f.client(t, transport)
		want := strings.Repeat("ü", 3<<19)
		m, _ := c.turn(c.session(""), "fail "+want)
		if got := decode[fault](m.Error).Message; got != want {
			t.Fatalf("want an error of %d bytes, got one of %d", len(want), len(got))
		}
	})
}
