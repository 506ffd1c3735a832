package bus_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
)

// large is the least that goes to PAYLOADS in life.
const large = 1 << 20

func randomBytes(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(b) // never fails
	return b
}

func TestPayloadRoundTrip(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx := t.Context()
	for name, size := range map[string]int{"p1": 5 << 20, "a.b c/*>é": large + 1} {
		want := randomBytes(size)
		if err := b.PutPayload(ctx, name, want); err != nil {
			t.Fatal(err)
		}
		got, err := b.GetPayload(ctx, name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, size)
		}
		if got, err := b.Body(ctx, name, nil); err != nil || len(got) != size {
			t.Errorf("Body(%s): %d bytes, %v", name, len(got), err)
		}
	}
	// The same name again holds the new body.
	if err := b.PutPayload(ctx, "p1", randomBytes(large)); err != nil {
		t.Fatal(err)
	}
	if got, err := b.GetPayload(ctx, "p1"); err != nil || !bytes.Equal(got, randomBytes(large)) {
		t.Errorf("written again: %d bytes, %v", len(got), err)
	}
	if got, err := b.Body(ctx, "", []byte("inline")); err != nil || string(got) != "inline" {
		t.Errorf("Body without a reference: %q, %v", got, err)
	}
}

func TestPayloadIsSeenByTheTool(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx := t.Context()
	if err := b.PutPayload(ctx, "p1", randomBytes(large)); err != nil {
		t.Fatal(err)
	}
	store, err := b.JetStream().ObjectStore(ctx, b.Fleet().PayloadsBucket())
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.Get(ctx, "p1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, randomBytes(large)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestPayloadMissing(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx := t.Context()
	if _, err := b.GetPayload(ctx, "nobody"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("never stored: %v", err)
	}
	if err := b.PutPayload(ctx, "p1", randomBytes(large)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.DeletePayload(ctx, "p1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.DeletePayload(ctx, "nobody"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.GetPayload(ctx, "p1"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	// The description is there, a chunk is not.
	if err := b.PutPayload(ctx, "p2", randomBytes(large)); err != nil {
		t.Fatal(err)
	}
	stream := "OBJ_" + b.Fleet().PayloadsBucket()
	m, err := b.Next(ctx, stream, "$O."+b.Fleet().PayloadsBucket()+".C.>", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteMessage(ctx, stream, m.Seq); err != nil {
		t.Fatal(err)
	}
	if got, err := b.GetPayload(ctx, "p2"); err == nil {
		t.Errorf("%d bytes of a body with a hole", len(got))
	}
}

func TestMaxInlineFits(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	m := nats.NewMsg(b.Fleet().Event("s1"))
	m.Header.Set("Rf-Kind", "update")
	m.Data = make([]byte, b.MaxInline())
	if _, err := b.Publish(t.Context(), m); err != nil {
		t.Errorf("a body of MaxInline: %v", err)
	}
	m.Data = make([]byte, b.MaxInline()+128<<10)
	if _, err := b.Publish(t.Context(), m); err == nil {
		t.Error("a body over the server's limit went through")
	}
}

// A body that is not what was stored is told apart from one that could not be read now:
// reading it again doesn't help.
func TestPayloadCorrupt(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	root := "$O." + b.Fleet().PayloadsBucket()
	name := base64.URLEncoding.EncodeToString([]byte("p1"))
	for subject, body := range map[string]string{
		root + ".C.x":       "a",
		root + ".M." + name: `{"name":"p1","nuid":"x","size":1,"chunks":1,"digest":"SHA-256=of-something-else"}`,
	} {
		if _, err := b.Publish(t.Context(), &nats.Msg{Subject: subject, Data: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.GetPayload(t.Context(), "p1"); !errors.Is(err, bus.ErrCorrupt) || bus.Unclear(err) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}

// stored is how many messages PAYLOADS has.
func stored(t *testing.T, b *bus.Bus) uint64 {
	t.Helper()
	return payloadStream(t, b).CachedInfo().State.Msgs
}

func payloadStream(t *testing.T, b *bus.Bus) jetstream.Stream {
	t.Helper()
	s, err := b.JetStream().Stream(t.Context(), "OBJ_"+b.Fleet().PayloadsBucket())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A body that doesn't fit is refused as such, and what was stored of it goes: it would keep
// the bucket full.
func TestPayloadThatDoesNotFit(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	config := payloadStream(t, b).CachedInfo().Config
	config.MaxBytes = 2 * large
	if _, err := b.JetStream().UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.PutPayload(t.Context(), "p1", randomBytes(3*large)); !errors.Is(err, bus.ErrFull) || bus.Unclear(err) {
			t.Fatalf("%v, want ErrFull", err)
		}
		if n := stored(t, b); n != 0 {
			t.Fatalf("%d messages stay", n)
		}
	}
	if err := b.PutPayload(t.Context(), "p1", randomBytes(large)); err != nil {
		t.Errorf("one that fits: %v", err)
	}
}

// Nothing of a deleted body stays, and what nothing describes goes when it is old.
func TestPayloadsAreClearedAway(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx := t.Context()
	if err := b.PutPayload(ctx, "p1", randomBytes(large)); err != nil {
		t.Fatal(err)
	}
	if err := b.DeletePayload(ctx, "p1"); err != nil || stored(t, b) != 0 {
		t.Fatalf("%d messages stay, %v", stored(t, b), err)
	}
	if err := b.PutPayload(ctx, "p2", randomBytes(large)); err != nil {
		t.Fatal(err)
	}
	whole := stored(t, b)
	for range 3 {
		if _, err := b.Publish(ctx, &nats.Msg{Subject: "$O." + b.Fleet().PayloadsBucket() + ".C.broken", Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.ClearPayloads(ctx, time.Now().Add(-time.Hour)); err != nil || stored(t, b) != whole+3 {
		t.Errorf("%d messages, %v: a body that is being stored is cleared away", stored(t, b), err)
	}
	if err := b.ClearPayloads(ctx, time.Now().Add(time.Hour)); err != nil || stored(t, b) != whole {
		t.Errorf("%d messages, %v; want %d", stored(t, b), err, whole)
	}
	if got, err := b.GetPayload(ctx, "p2"); err != nil || !bytes.Equal(got, randomBytes(large)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
