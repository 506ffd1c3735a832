package bus_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/natstest"
)

func errCode(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

func TestRecordCompareAndSet(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, bucket := t.Context(), b.Fleet().RunsBucket()

	first, err := b.PutJSON(ctx, bucket, "p1", "a", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutJSON(ctx, bucket, "p1", "b", 0, 0); !errors.Is(err, bus.ErrConflict) || errCode(err) != 10071 {
		t.Errorf("created twice: %v", err)
	}
	second, err := b.PutJSON(ctx, bucket, "p1", "c", first, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutJSON(ctx, bucket, "p1", "d", first, 0); !errors.Is(err, bus.ErrConflict) || bus.Unclear(err) {
		t.Errorf("written over a newer revision: %v", err)
	}
	var got string
	rev, err := b.GetJSON(ctx, bucket, "p1", &got)
	if err != nil || got != "c" || rev != second {
		t.Errorf("read %q at %d: %v; want c at %d", got, rev, err, second)
	}
	if rev, err := b.GetJSON(ctx, bucket, "nobody", &got); !errors.Is(err, bus.ErrNotFound) || rev != 0 {
		t.Errorf("a key that never was: revision %d, %v", rev, err)
	}
	var number int
	if rev, err := b.GetJSON(ctx, bucket, "p1", &number); err == nil || rev != second {
		t.Errorf("text read as a number: revision %d, %v", rev, err)
	}
}

func TestRecordDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, bucket := t.Context(), b.Fleet().SessionsBucket()
	if _, err := b.SetJSON(ctx, bucket, "local.s1.meta", "a", 0); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second deletion does no harm
		if err := b.Delete(ctx, bucket, "local.s1.meta"); err != nil {
			t.Fatal(err)
		}
	}
	var v string
	rev, err := b.GetJSON(ctx, bucket, "local.s1.meta", &v)
	if !errors.Is(err, bus.ErrNotFound) || rev == 0 {
		t.Fatalf("after Delete: revision %d, %v", rev, err)
	}
	if list, err := b.List(ctx, bucket, ""); err != nil || len(list) != 0 {
		t.Errorf("a deleted key is listed: %v, %v", list, err)
	}
	if _, err := b.PutJSON(ctx, bucket, "local.s1.meta", "b", 0, 0); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("the mark of the deletion was passed over: %v", err)
	}
	if _, err := b.PutJSON(ctx, bucket, "local.s1.meta", "b", rev, 0); err != nil {
		t.Errorf("not made again: %v", err)
	}
	if _, err := b.GetJSON(ctx, bucket, "local.s1.meta", &v); err != nil || v != "b" {
		t.Errorf("read %q: %v", v, err)
	}
}

func TestRecordsVanish(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, bucket := t.Context(), b.Fleet().NodesBucket()
	if _, err := b.PutJSON(ctx, bucket, "w1", "a", 0, time.Millisecond); err != nil { // a second is the least
		t.Fatal(err)
	}
	if _, err := b.SetJSON(ctx, bucket, "w2", "a", time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetJSON(ctx, bucket, "w3", "a", 0); err != nil {
		t.Fatal(err)
	}
	if r, err := b.Get(ctx, bucket, "w2"); err != nil || r.TTL != time.Second {
		t.Errorf("record %+v: %v", r, err)
	}
	natstest.Eventually(t, 20*time.Second, "the records vanish", func() (bool, any) {
		list, err := b.List(ctx, bucket, "")
		return err == nil && len(list) == 1 && list[0].Key == "w3" && list[0].TTL == 0, list
	})
	// Nothing is left in the way of a new one.
	if _, err := b.PutJSON(ctx, bucket, "w1", "b", 0, 0); err != nil {
		t.Error(err)
	}
}

func TestRecordList(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx, bucket := t.Context(), b.Fleet().SessionsBucket()
	for _, key := range []string{"local.s1.meta", "local.s1.agent", "local.s2.meta", "bob.s3.meta"} {
		if _, err := b.SetJSON(ctx, bucket, key, key, 0); err != nil {
			t.Fatal(err)
		}
	}
	for filter, want := range map[string]string{
		"":             "bob.s3.meta local.s1.agent local.s1.meta local.s2.meta",
		"local.*.meta": "local.s1.meta local.s2.meta",
		"eve.*.meta":   "",
	} {
		list, err := b.List(ctx, bucket, filter)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, r := range list {
			keys = append(keys, r.Key)
			if string(r.Value) != `"`+r.Key+`"` || r.Rev == 0 {
				t.Errorf("record %+v", r)
			}
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("List(%q) = %s, want %s", filter, got, want)
		}
	}
}

// The plain client library must see the buckets as such: people use the nats tool.
func TestBucketsAreBuckets(t *testing.T) {
	t.Parallel()
	_, b := natstest.Bus(t)
	ctx := t.Context()
	for _, bucket := range []string{b.Fleet().RunsBucket(), b.Fleet().SessionsBucket(), b.Fleet().NodesBucket(), b.Fleet().AsksBucket()} {
		if _, err := b.SetJSON(ctx, bucket, "k1", "v", 0); err != nil {
			t.Fatal(err)
		}
		kv, err := b.JetStream().KeyValue(ctx, bucket)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := kv.Get(ctx, "k1")
		if err != nil || string(entry.Value()) != `"v"` {
			t.Errorf("%s: %v, %v", bucket, entry, err)
		}
		if err := b.Delete(ctx, bucket, "k1"); err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Get(ctx, "k1"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("%s: deleted key: %v", bucket, err)
		}
	}
}
