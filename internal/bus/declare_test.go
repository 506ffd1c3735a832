package bus_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
	"raiderfleet/subjects"
)

// captured subscribes and returns a function that tells what came.
func captured(t *testing.T, b *bus.Bus, subject string) func() []string {
	t.Helper()
	sub, err := b.Conn().SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	var got []string
	return func() []string {
		// A request that was answered has been sent to us before the flush's answer.
		if err := b.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := sub.NextMsg(0)
			if err != nil {
				break
			}
			got = append(got, m.Subject)
		}
		return slices.Clone(got)
	}
}

func config(t *testing.T, b *bus.Bus, stream string) jetstream.StreamConfig {
	t.Helper()
	s, err := b.JetStream().Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func update(t *testing.T, b *bus.Bus, c jetstream.StreamConfig) {
	t.Helper()
	if _, err := b.JetStream().UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestDeclareIsIdempotent(t *testing.T) {
	t.Parallel()
	s, b := natstest.Bus(t)
	spy := natstest.Connect(t, s.ClientURL(), 1)
	updates := captured(t, spy, "$JS.API.STREAM.UPDATE.>")
	creates := captured(t, spy, "$JS.API.STREAM.CREATE.>")
	other := natstest.Connect(t, s.ClientURL(), 1)
	for _, again := range []*bus.Bus{b, other} {
		if err := again.Declare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := append(updates(), creates()...); len(got) != 0 {
		t.Errorf("a second Declare changed what was right: %v", got)
	}
}

func TestDeclareAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	const processes = 4
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i := range processes {
		b := natstest.Connect(t, s.ClientURL(), 1)
		wg.Go(func() { errs[i] = b.Declare(t.Context()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	b := natstest.Connect(t, s.ClientURL(), 1)
	for _, want := range natstest.Layout(1).Streams() {
		if c := config(t, b, want.Name); c.AllowDirect {
			t.Errorf("%s has AllowDirect", want.Name)
		}
	}
}

func TestDeclareLeavesNewer(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	name := b.Fleet().EventsStream()
	newer := config(t, b, name)
	newer.Metadata[subjects.ConfigVersionKey] = strconv.Itoa(subjects.ConfigVersion + 1)
	newer.MaxAge = time.Hour
	update(t, b, newer)
	if err := b.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := config(t, b, name)
	if got.MaxAge != time.Hour || got.Metadata[subjects.ConfigVersionKey] != newer.Metadata[subjects.ConfigVersionKey] {
		t.Errorf("a newer declaration was changed: %+v", got)
	}
}

func TestDeclareRepairs(t *testing.T) {
	t.Parallel()
	events := natstest.Layout(1).Fleet.EventsStream()
	backlog := natstest.Layout(1).Fleet.BacklogStream()
	runs := "KV_" + natstest.Layout(1).Fleet.RunsBucket()
	for _, c := range []struct {
		name   string
		stream string
		spoil  func(*jetstream.StreamConfig)
		right  func(jetstream.StreamConfig) bool
	}{
		{
			"an older version", events,
			func(c *jetstream.StreamConfig) { c.Metadata[subjects.ConfigVersionKey] = "0"; c.MaxAge = time.Hour },
			func(c jetstream.StreamConfig) bool { return c.MaxAge == subjects.EventsAge },
		},
		{
			"no version", events,
			func(c *jetstream.StreamConfig) { delete(c.Metadata, subjects.ConfigVersionKey) },
			func(jetstream.StreamConfig) bool { return true },
		},
		{
			"direct reads turned on", runs,
			func(c *jetstream.StreamConfig) { c.AllowDirect = true },
			func(c jetstream.StreamConfig) bool { return !c.AllowDirect },
		},
		{
			"a shorter duplicate window", backlog,
			func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
			func(c jetstream.StreamConfig) bool { return c.Duplicates == subjects.DuplicateWindow },
		},
		{
			"wake with bodies", backlog,
			func(c *jetstream.StreamConfig) { c.RePublish.HeadersOnly = false },
			func(c jetstream.StreamConfig) bool { return c.RePublish != nil && c.RePublish.HeadersOnly },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, b := natstest.Bus(t)
			spoilt := config(t, b, c.stream)
			c.spoil(&spoilt)
			update(t, b, spoilt)
			if err := b.Declare(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := config(t, b, c.stream)
			if !c.right(got) || got.Metadata[subjects.ConfigVersionKey] != strconv.Itoa(subjects.ConfigVersion) {
				t.Errorf("not repaired: %+v", got)
			}
		})
	}
}

// The server answers direct reads from any replica as soon as somebody turns them on;
// ours must go to the leader even then, and before the next Declare.
func TestReadsStayOnTheLeader(t *testing.T) {
	t.Parallel()
	s, b := natstest.Bus(t)
	ctx := t.Context()
	spy := natstest.Connect(t, s.ClientURL(), 1)
	direct := captured(t, spy, "$JS.API.DIRECT.GET.>")
	leader := captured(t, spy, "$JS.API.STREAM.MSG.GET.>")
	bucket := b.Fleet().RunsBucket()
	for _, want := range b.Layout().Streams() {
		c := config(t, b, want.Name)
		c.AllowDirect = true
		update(t, b, c)
		if _, err := b.LastSeq(ctx, want.Name); err != nil { // the library's handle learns of it
			t.Fatal(err)
		}
	}
	if _, err := b.SetJSON(ctx, bucket, "p1", "x", 0); err != nil {
		t.Fatal(err)
	}
	if err := b.PutPayload(ctx, "big", randomBytes(large)); err != nil {
		t.Fatal(err)
	}
	reads := []func() error{
		func() error { _, err := b.Get(ctx, bucket, "p1"); return err },
		func() error { _, err := b.List(ctx, bucket, ""); return err },
		func() error { _, err := b.Last(ctx, "KV_"+bucket, "$KV."+bucket+".p1"); return err },
		func() error { _, err := b.Next(ctx, "KV_"+bucket, "$KV."+bucket+".>", 0); return err },
		func() error { _, err := b.GetPayload(ctx, "big"); return err },
	}
	before := direct() // what the library did to store the object
	for i, read := range reads {
		if err := read(); err != nil {
			t.Errorf("read %d: %v", i, err)
		}
	}
	if got := direct()[len(before):]; len(got) != 0 {
		t.Errorf("direct reads: %v", got)
	}
	if len(leader()) < len(reads) {
		t.Errorf("only these reads were seen: %v", leader())
	}
	// The spy does see direct reads.
	stream, err := b.JetStream().Stream(ctx, "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.GetLastMsgForSubject(ctx, "$KV."+bucket+".p1"); err != nil {
		t.Fatal(err)
	}
	if len(direct()) == len(before) {
		t.Error("the library's own direct read was not seen: this test proves nothing")
	}
}

// A reservation for which NATS has no room is told with what it wants, what there is and
// which key sets it.
func TestDeclareWithoutRoom(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	layout := subjects.Layout{Fleet: "test", Replicas: 1, MaxBacklog: 10, EventsBytes: 1 << 60}
	for _, inProcess := range []*server.Server{s, nil} {
		b, err := bus.Connect(t.Context(), bus.Options{URLs: []string{s.ClientURL()}, InProcess: inProcess, Layout: layout, AckWait: natstest.AckWait})
		if err != nil {
			t.Fatal(err)
		}
		err = b.Declare(t.Context())
		b.Close()
		left := "its log says at its start how many it may use"
		if inProcess != nil {
			left = fmt.Sprintf("NATS may use %d of the disk, and 0 are reserved already: %[1]d are left", s.JetStreamConfig().MaxStore)
		}
		for _, text := range []string{"RF_test_EVENTS", "reserves 1152921504606846976 bytes", left, "logs.max_events_size"} {
			if !errors.Is(err, bus.ErrNoSpace) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v; want %q", err, text)
			}
		}
	}
}
