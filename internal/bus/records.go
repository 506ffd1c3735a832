package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Record is a value of a bucket with its revision.
type Record struct {
	Key   string
	Value []byte
	Rev   uint64
	// TTL is 0 for a value that stays.
	TTL time.Duration
	// Time at which it was written, by the server's clock.
	Time time.Time
}

const kvOperation = "KV-Operation"

// Get reads a key from the leader. ErrNotFound also when it was deleted; Rev is then
// that of the deletion, which Put wants as expect.
func (b *Bus) Get(ctx context.Context, bucket, key string) (Record, error) {
	m, err := b.Last(ctx, "KV_"+bucket, "$KV."+bucket+"."+key)
	if err != nil {
		return Record{Key: key}, fmt.Errorf("read %s %s: %w", bucket, key, err)
	}
	if m.Header.Get(kvOperation) != "" || m.Header.Get("Nats-Marker-Reason") != "" {
		return Record{Key: key, Rev: m.Seq}, fmt.Errorf("read %s %s: %w", bucket, key, ErrNotFound)
	}
	r := Record{Key: key, Value: m.Data, Rev: m.Seq, Time: m.Time}
	if text := m.Header.Get(jetstream.MsgTTLHeader); text != "" {
		// A TTL that can't be read is one all the same.
		if r.TTL, err = time.ParseDuration(text); err != nil {
			r.TTL = time.Second
		}
	}
	return r, nil
}

// GetJSON reads a key into v and returns its revision.
func (b *Bus) GetJSON(ctx context.Context, bucket, key string, v any) (uint64, error) {
	r, err := b.Get(ctx, bucket, key)
	if err != nil {
		return r.Rev, err
	}
	if err := json.Unmarshal(r.Value, v); err != nil {
		return r.Rev, fmt.Errorf("read %s %s: %w: %w", bucket, key, ErrCorrupt, err)
	}
	return r.Rev, nil
}

func putMsg(bucket, key string, v any) (*nats.Msg, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write %s %s: %w", bucket, key, err)
	}
	return &nats.Msg{Subject: "$KV." + bucket + "." + key, Data: body}, nil
}

func ttlOpt(ttl time.Duration) []jetstream.PublishOpt {
	if ttl <= 0 {
		return nil
	}
	// The server takes whole seconds, at least one.
	return []jetstream.PublishOpt{jetstream.WithMsgTTL(max(ttl.Truncate(time.Second), time.Second))}
}

// PutJSON writes a key if its revision is expect, 0 for one that never was. ttl 0 keeps
// it for ever. ErrConflict when another was first, or an earlier try of one's own.
func (b *Bus) PutJSON(ctx context.Context, bucket, key string, v any, expect uint64, ttl time.Duration) (uint64, error) {
	m, err := putMsg(bucket, key, v)
	if err != nil {
		return 0, err
	}
	rev, err := b.PublishExpect(ctx, m, expect, ttlOpt(ttl)...)
	if err != nil {
		return 0, fmt.Errorf("write %s %s: %w", bucket, key, err)
	}
	return rev, nil
}

// SetJSON writes a key whatever it held.
func (b *Bus) SetJSON(ctx context.Context, bucket, key string, v any, ttl time.Duration) (uint64, error) {
	m, err := putMsg(bucket, key, v)
	if err != nil {
		return 0, err
	}
	rev, err := b.Publish(ctx, m, ttlOpt(ttl)...)
	if err != nil {
		return 0, fmt.Errorf("write %s %s: %w", bucket, key, err)
	}
	return rev, nil
}

// Delete deletes a key. The mark of it goes after a minute.
func (b *Bus) Delete(ctx context.Context, bucket, key string) error {
	m := &nats.Msg{Subject: "$KV." + bucket + "." + key, Header: nats.Header{}}
	m.Header.Set(kvOperation, "DEL")
	if _, err := b.Publish(ctx, m, ttlOpt(time.Minute)...); err != nil {
		return fmt.Errorf("delete %s %s: %w", bucket, key, err)
	}
	return nil
}

// List reads all keys of a bucket that filter matches ("" for all), in no order.
// It reads one by one from the leader: for people and sweeps, not for hot paths.
func (b *Bus) List(ctx context.Context, bucket, filter string) ([]Record, error) {
	if filter == "" {
		filter = ">"
	}
	names, err := b.Subjects(ctx, "KV_"+bucket, "$KV."+bucket+"."+filter)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", bucket, err)
	}
	var out []Record
	for _, name := range names {
		r, err := b.Get(ctx, bucket, bucketKey(bucket, name))
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}
