package bus_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
)

func publish(t *testing.T, b *bus.Bus, subject, body string) uint64 {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Header.Set("Rf-Kind", "prompt")
	m.Data = []byte(body)
	seq, err := b.Publish(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func TestNextAndLast(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, f, stream := t.Context(), b.Fleet(), b.Fleet().BacklogStream()
	one, two := f.Backlog("bjorn", "slot-1bjorn", "local"), f.Backlog("bjorn", "slot-2bjorn", "local")
	publish(t, b, one, "a") // 1
	publish(t, b, two, "b") // 2
	publish(t, b, one, "c") // 3

	for _, c := range []struct {
		subject string
		from    uint64
		seq     uint64 // 0: not found
		body    string
	}{
		{one, 0, 1, "a"}, {one, 1, 1, "a"}, {one, 2, 3, "c"}, {one, 4, 0, ""},
		{two, 0, 2, "b"}, {two, 3, 0, ""},
		{f.BacklogRaider("bjorn"), 2, 2, "b"}, {f.BacklogAll(), 3, 3, "c"},
		{f.BacklogRaider("other"), 0, 0, ""},
	} {
		m, err := b.Next(ctx, stream, c.subject, c.from)
		if c.seq == 0 {
			if !errors.Is(err, bus.ErrNotFound) {
				t.Errorf("Next(%s, %d) = %+v, %v; want not found", c.subject, c.from, m, err)
			}
			continue
		}
		if err != nil || m.Seq != c.seq || string(m.Data) != c.body || m.Header.Get("Rf-Kind") != "prompt" {
			t.Errorf("Next(%s, %d) = %+v, %v; want %d", c.subject, c.from, m, err, c.seq)
		}
	}
	if m, err := b.Last(ctx, stream, one); err != nil || m.Seq != 3 || m.Subject != one {
		t.Errorf("Last = %+v, %v", m, err)
	}
	if _, err := b.Last(ctx, stream, f.Backlog("bjorn", "slot-9bjorn", "local")); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("Last of nothing: %v", err)
	}
	if _, err := b.Last(ctx, "RF_test_NONE", one); err == nil || errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a stream that is missing is no missing message: %v", err)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, f, stream := t.Context(), b.Fleet(), b.Fleet().BacklogStream()
	one, two := f.Backlog("bjorn", "slot-1bjorn", "local"), f.Backlog("erik", "sess-s1", "local")
	if last, err := b.LastSeq(ctx, stream); err != nil || last != 0 {
		t.Errorf("LastSeq of an empty stream = %d, %v", last, err)
	}
	publish(t, b, one, "a")
	publish(t, b, one, "b")
	publish(t, b, two, "c")
	for filter, want := range map[string]map[string]uint64{
		f.BacklogAll():            {one: 2, two: 1},
		f.BacklogRaider("bjorn"):  {one: 2},
		f.BacklogRaider("nobody"): {},
	} {
		if got, err := b.Counts(ctx, stream, filter); err != nil || !maps.Equal(got, want) {
			t.Errorf("Counts(%s) = %v, %v; want %v", filter, got, err, want)
		}
	}
	if got, err := b.Subjects(ctx, stream, f.BacklogAll()); err != nil || len(got) != 2 {
		t.Errorf("Subjects = %v, %v", got, err)
	}
	// The highest sequence stays when the message goes.
	if err := b.DeleteMessage(ctx, stream, 3); err != nil {
		t.Fatal(err)
	}
	if last, err := b.LastSeq(ctx, stream); err != nil || last != 3 {
		t.Errorf("LastSeq = %d, %v", last, err)
	}
}

func TestDeleteMessageTwice(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, f := t.Context(), b.Fleet()
	ready, backlog := f.ReadyStream(), f.BacklogStream()
	for _, c := range []struct {
		name, stream string
		seqs         []uint64
	}{
		{"first and last of READY", ready, []uint64{publish(t, b, f.Ready("bjorn", "any", "slot-1bjorn"), "")}},
		{"one between others", backlog, []uint64{
			publish(t, b, f.Backlog("bjorn", "slot-1bjorn", "local"), ""), publish(t, b, f.Backlog("bjorn", "slot-1bjorn", "local"), ""),
			publish(t, b, f.Backlog("bjorn", "slot-1bjorn", "local"), ""),
		}},
	} {
		seq := c.seqs[len(c.seqs)/2]
		for i := range 3 {
			if err := b.DeleteMessage(ctx, c.stream, seq); err != nil {
				t.Errorf("%s, deletion %d: %v", c.name, i+1, err)
			}
		}
	}
	if err := b.DeleteMessage(ctx, ready, 1<<40); err != nil {
		t.Errorf("a sequence that never was: %v", err)
	}
	if err := b.DeleteMessage(ctx, "RF_test_NONE", 1); err == nil {
		t.Error("no error for a stream that is missing")
	}
	// A bucket refuses deletions by sequence; that is not 'already gone'.
	bucket := f.RunsBucket()
	rev, err := b.SetJSON(ctx, bucket, "p1", "x", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteMessage(ctx, "KV_"+bucket, rev); err == nil {
		t.Error("a refused deletion was reported as done")
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, f := t.Context(), b.Fleet()
	baton := &nats.Msg{Subject: f.Ready("bjorn", "any", "slot-1bjorn")}
	seq, err := b.Publish(ctx, baton)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Publish(ctx, baton)
	if !errors.Is(err, bus.ErrFull) || errCode(err) != 10077 || bus.Unclear(err) {
		t.Errorf("a second baton: %v", err)
	}
	if _, err := b.Publish(ctx, &nats.Msg{Subject: f.Ready("bjorn", "any", "slot-2bjorn")}); err != nil {
		t.Errorf("another lane's baton: %v", err)
	}
	// Deleted, the next one goes in at once.
	if err := b.DeleteMessage(ctx, f.ReadyStream(), seq); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Publish(ctx, baton); err != nil {
		t.Errorf("after the deletion: %v", err)
	}
	for i := range natstest.Layout(1).MaxBacklog {
		publish(t, b, f.Backlog("bjorn", "slot-1bjorn", "local"), fmt.Sprint(i))
	}
	if _, err := b.Publish(ctx, &nats.Msg{Subject: f.Backlog("bjorn", "slot-1bjorn", "local")}); !errors.Is(err, bus.ErrFull) {
		t.Errorf("a full backlog: %v", err)
	}
}

func TestPublishOnce(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, f := t.Context(), b.Fleet()
	m := &nats.Msg{Subject: f.Backlog("bjorn", "sess-s1", "local"), Data: []byte("a")}
	first, err := b.Publish(ctx, m, jetstream.WithMsgID("p1"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Publish(ctx, m, jetstream.WithMsgID("p1"))
	if err != nil || again != first {
		t.Errorf("the same prompt again: %d, %v; want %d", again, err, first)
	}
}

func TestPublishExpect(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, subject := t.Context(), b.Fleet().Own("bjorn", "slot-1bjorn")
	// A slice with room behind it must not be written to: another may use it too.
	room := make([]jetstream.PublishOpt, 0, 4)
	first, err := b.PublishExpect(ctx, &nats.Msg{Subject: subject}, 0, room...)
	if err != nil {
		t.Fatal(err)
	}
	if room[:1][0] != nil {
		t.Error("the caller's options were written to")
	}
	if _, err := b.PublishExpect(ctx, &nats.Msg{Subject: subject}, 0); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("claimed over an owner: %v", err)
	}
	if _, err := b.PublishExpect(ctx, &nats.Msg{Subject: subject}, first); err != nil {
		t.Errorf("a renewal: %v", err)
	}
}

// What is stored arrives on the second subject, with its sequence; of a prompt the
// headers only.
func TestRepublished(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	f := b.Fleet()
	live, err := b.Conn().SubscribeSync(f.Live("s1"))
	if err != nil {
		t.Fatal(err)
	}
	wake, err := b.Conn().SubscribeSync(f.Wake("bjorn", "slot-1bjorn", "local"))
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, f.Event("s1"), "a")
	publish(t, b, f.Backlog("bjorn", "slot-1bjorn", "local"), "secret")
	for _, c := range []struct {
		sub  *nats.Subscription
		body string
	}{{live, "a"}, {wake, ""}} {
		m, err := c.sub.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != c.body || m.Header.Get("Nats-Sequence") != "1" || m.Header.Get("Nats-Last-Sequence") != "0" || m.Header.Get("Rf-Kind") != "prompt" {
			t.Errorf("%s: %q %v", m.Subject, m.Data, m.Header)
		}
	}
}

// What is cut is gone, what stays is untouched, and batons are never cut.
func TestCut(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, f := t.Context(), b.Fleet()
	stream := f.EventsStream()
	var seqs []uint64
	for i := range 6 {
		seqs = append(seqs, publish(t, b, f.Event("s1"), fmt.Sprint(i)))
		publish(t, b, f.Event("s2"), fmt.Sprint(i))
	}
	if err := b.Cut(ctx, stream, bus.Cut{Subject: f.Event("s1"), Before: seqs[2]}); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Next(ctx, stream, f.Event("s1"), 1); err != nil || m.Seq != seqs[2] {
		t.Errorf("the first is %d (%v), want %d", m.Seq, err, seqs[2])
	}
	if err := b.Cut(ctx, stream, bus.Cut{Subject: f.Event("s1"), Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Next(ctx, stream, f.Event("s1"), 1); err != nil || m.Seq != seqs[5] {
		t.Errorf("the first is %d (%v), want %d", m.Seq, err, seqs[5])
	}
	if m, err := b.Next(ctx, stream, f.Event("s2"), 1); err != nil || m.Seq != seqs[0]+1 {
		t.Errorf("of another subject the first is %d (%v)", m.Seq, err)
	}
	if err := b.Cut(ctx, f.ReadyStream(), bus.Cut{Subject: f.Ready("bjorn", "any", "slot-1bjorn")}); err == nil {
		t.Error("batons were cut")
	}
}
