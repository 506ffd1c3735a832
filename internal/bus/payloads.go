package bus

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func (b *Bus) payloads(ctx context.Context) (jetstream.ObjectStore, error) {
	b.mu.Lock()
	o := b.objects
	b.mu.Unlock()
	if o != nil {
		return o, nil
	}
	ctx, cancel := b.request(ctx)
	defer cancel()
	o, err := b.js.ObjectStore(ctx, b.Fleet().PayloadsBucket())
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", cause(ctx, err))
	}
	b.mu.Lock()
	b.objects = o
	b.mu.Unlock()
	return o, nil
}

// chunkBytes is the object store's own default.
const chunkBytes = 128 << 10

// PutPayload stores a body that is larger than MaxInline under name. The object is
// stored before the message that refers to it is published.
//
// It writes what the client library's Put would, chunk by chunk: that one leaves a
// goroutine behind when the object is stored before the goroutine first runs, and may
// store the description of a body whose chunk was refused. ErrFull: the bucket has a bound
// of its own and has reached it; ErrNoSpace: the server has none.
func (b *Bus) PutPayload(ctx context.Context, name string, body []byte) error {
	ctx, cancel := b.Bound(ctx, PayloadTime)
	defer cancel()
	if err := b.putPayload(ctx, name, body); err != nil {
		return fmt.Errorf("store payload %s: %w", name, cause(ctx, err))
	}
	return nil
}

func (b *Bus) putPayload(ctx context.Context, name string, body []byte) error {
	stream, prefix := b.payloadStream()
	description := payloadDescription(prefix, name)
	sum := sha256.Sum256(body)
	info := jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}},
		Bucket:     b.Fleet().PayloadsBucket(),
		// Each try has chunks of its own: those of one that failed are never in the body.
		NUID:   rand.Text(),
		Size:   uint64(len(body)),
		Digest: digest(sum),
	}
	var before jetstream.ObjectInfo
	switch m, err := b.Last(ctx, stream, description); {
	case isNotFound(err):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(m.Data, &before); err != nil {
			return fmt.Errorf("object's description: %w", err)
		}
	}
	for chunk := range slices.Chunk(body, chunkBytes) {
		m := nats.NewMsg(prefix + ".C." + info.NUID)
		m.Data = chunk
		if _, err := b.Publish(ctx, m); err != nil {
			// They would keep a full bucket full. What can't be cleared away now is
			// ClearPayloads's.
			last, cancel := b.request(context.WithoutCancel(ctx))
			_ = b.Cut(last, stream, Cut{Subject: prefix + ".C." + info.NUID})
			cancel()
			return err
		}
		info.Chunks++
	}
	m := nats.NewMsg(description)
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	var err error
	if m.Data, err = json.Marshal(info); err != nil {
		return err
	}
	if _, err := b.Publish(ctx, m); err != nil {
		return err // it may be stored all the same
	}
	if before.NUID != "" && !before.Deleted {
		// The body is stored: what can't be cleared away now is ClearPayloads's.
		_ = b.Cut(ctx, stream, Cut{Subject: prefix + ".C." + before.NUID})
	}
	return nil
}

// payloadStream is the stream under the object store and the root of its subjects.
func (b *Bus) payloadStream() (stream, prefix string) {
	bucket := b.Fleet().PayloadsBucket()
	return "OBJ_" + bucket, "$O." + bucket
}

func payloadDescription(prefix, name string) string {
	return prefix + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func digest(sum [sha256.Size]byte) string {
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
}

// GetPayload reads a body back, checked against its digest. ErrNotFound,
// ErrCorrupt.
//
// It reads chunk by chunk from the leader: the client library's reader makes a consumer
// for each object, and waits out its deadline when the link breaks.
func (b *Bus) GetPayload(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := b.Bound(ctx, PayloadTime)
	defer cancel()
	body, err := b.payload(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read payload %s: %w", name, err)
	}
	return body, nil
}

func (b *Bus) payload(ctx context.Context, name string) ([]byte, error) {
	stream, prefix := b.payloadStream()
	meta, err := b.Last(ctx, stream, payloadDescription(prefix, name))
	if err != nil {
		return nil, err
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(meta.Data, &info); err != nil {
		return nil, fmt.Errorf("object's description: %w", &classified{ErrCorrupt, err})
	}
	if info.Deleted {
		return nil, ErrNotFound
	}
	var body []byte
	for seq := uint64(1); uint64(len(body)) < info.Size; {
		chunk, err := b.Next(ctx, stream, prefix+".C."+info.NUID, seq)
		if err != nil {
			return nil, err
		}
		body = append(body, chunk.Data...)
		seq = chunk.Seq + 1
	}
	sum := sha256.Sum256(body)
	if info.Digest != digest(sum) {
		return nil, &classified{ErrCorrupt, jetstream.ErrDigestMismatch}
	}
	return body, nil
}

// DeletePayload deletes a body. Already gone is success.
//
// Nothing of it stays: the client library's Delete would leave a mark for ever.
func (b *Bus) DeletePayload(ctx context.Context, name string) error {
	ctx, cancel := b.bind(ctx)
	defer cancel()
	if err := b.deletePayload(ctx, name); err != nil && !isNotFound(err) {
		return fmt.Errorf("delete payload %s: %w", name, cause(ctx, err))
	}
	return nil
}

func (b *Bus) deletePayload(ctx context.Context, name string) error {
	stream, prefix := b.payloadStream()
	description := payloadDescription(prefix, name)
	m, err := b.Last(ctx, stream, description)
	if err != nil {
		return err
	}
	// The description first: a body without it is ClearPayloads's, one without chunks would
	// be found.
	if err := b.Cut(ctx, stream, Cut{Subject: description, Before: m.Seq + 1}); err != nil {
		return err
	}
	var info jetstream.ObjectInfo
	_ = json.Unmarshal(m.Data, &info) // of one that can't be read, what it described nobody can tell
	if info.NUID == "" {
		return nil
	}
	return b.Cut(ctx, stream, Cut{Subject: prefix + ".C." + info.NUID})
}

// ClearPayloads deletes what nothing describes and was stored before a time: parts of bodies
// that were never stored whole, or whose deletion was broken off.
func (b *Bus) ClearPayloads(ctx context.Context, before time.Time) error {
	stream, prefix := b.payloadStream()
	parts, err := b.Subjects(ctx, stream, prefix+".C.>")
	if err != nil || len(parts) == 0 {
		return err
	}
	described := map[string]bool{}
	names, err := b.Subjects(ctx, stream, prefix+".M.>")
	if err != nil {
		return err
	}
	for _, subject := range names {
		m, err := b.Last(ctx, stream, subject)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		var info jetstream.ObjectInfo
		_ = json.Unmarshal(m.Data, &info) // of one that can't be read, the body can't be either
		described[prefix+".C."+info.NUID] = !info.Deleted
	}
	for _, subject := range parts {
		if described[subject] {
			continue
		}
		m, err := b.Last(ctx, stream, subject)
		switch {
		case isNotFound(err), err == nil && !m.Time.Before(before): // gone, or being stored perhaps
			continue
		case err != nil:
			return err
		}
		if err := b.Cut(ctx, stream, Cut{Subject: subject}); err != nil {
			return err
		}
	}
	return nil
}

// Payload describes a stored body.
type Payload struct {
	Name   string
	Stored time.Time
}

// Payloads lists the stored bodies, in no order.
func (b *Bus) Payloads(ctx context.Context) ([]Payload, error) {
	o, err := b.payloads(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.Bound(ctx, PayloadTime)
	defer cancel()
	list, err := o.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list payloads: %w", cause(ctx, err))
	}
	out := make([]Payload, len(list))
	for i, info := range list {
		out[i] = Payload{Name: info.Name, Stored: info.ModTime}
	}
	return out, nil
}

// Body returns a message's body: its data, or the payload that ref names.
func (b *Bus) Body(ctx context.Context, ref string, data []byte) ([]byte, error) {
	if ref == "" {
		return data, nil
	}
	return b.GetPayload(ctx, ref)
}
