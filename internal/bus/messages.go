package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is a stored message.
type Message struct {
	Subject string
	Seq     uint64
	Header  nats.Header
	Data    []byte
	// Time is when it was stored, by the server's clock.
	Time time.Time
}

// apiReply is what the answers of the JetStream API used here have in common.
type apiReply struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// api asks the JetStream API for op on a stream. The client library isn't asked, since
// its reads turn to any replica as soon as it has seen a stream with AllowDirect on, and
// its deletions lose the error code.
func (b *Bus) api(ctx context.Context, op, stream string, request any) (apiReply, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return apiReply{}, err
	}
	m, err := b.nc.RequestWithContext(ctx, "$JS.API."+op+"."+stream, body)
	if err != nil {
		return apiReply{}, cause(ctx, err)
	}
	var reply apiReply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return apiReply{}, fmt.Errorf("answer to %s: %w", op, err)
	}
	if reply.Error != nil {
		return apiReply{}, classify(reply.Error)
	}
	return reply, nil
}

func (b *Bus) read(ctx context.Context, stream string, request any) (Message, error) {
	reply, err := b.api(ctx, "STREAM.MSG.GET", stream, request)
	if err != nil {
		return Message{}, err
	}
	if reply.Message == nil {
		return Message{}, errors.New("answer to STREAM.MSG.GET has no message")
	}
	m := Message{Subject: reply.Message.Subject, Seq: reply.Message.Seq, Data: reply.Message.Data, Time: reply.Message.Time}
	if len(reply.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(reply.Message.Header); err != nil {
			return Message{}, fmt.Errorf("message %d of %s: %w", m.Seq, stream, err)
		}
	}
	return m, nil
}

type lastRequest struct {
	LastFor string `json:"last_by_subj"`
}

type nextRequest struct {
	Seq     uint64 `json:"seq,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"`
}

type deleteRequest struct {
	Seq uint64 `json:"seq"`
	// NoErase: without it the server overwrites the message with random bytes first.
	NoErase bool `json:"no_erase"`
}

// Last reads the last message of a subject from the stream's leader. ErrNotFound.
func (b *Bus) Last(ctx context.Context, stream, subject string) (Message, error) {
	return b.read(ctx, stream, lastRequest{LastFor: subject})
}

// Next reads the first message of a subject (wildcards are allowed) with a sequence of
// at least from, from the stream's leader. ErrNotFound.
func (b *Bus) Next(ctx context.Context, stream, subject string, from uint64) (Message, error) {
	return b.read(ctx, stream, nextRequest{Seq: from, NextFor: subject})
}

// DeleteMessage deletes by sequence. Already gone is success.
func (b *Bus) DeleteMessage(ctx context.Context, stream string, seq uint64) error {
	_, err := b.api(ctx, "STREAM.MSG.DELETE", stream, deleteRequest{Seq: seq, NoErase: true})
	var api *jetstream.APIError
	if err == nil || !errors.As(err, &api) {
		return err
	}
	switch api.ErrorCode {
	case codeSequenceNotFound:
		return nil
	case codeDeleteFailed:
		// Says 'no such message' most of the time, but stands for every failure of the
		// store, and a baton that is taken for deleted blocks its lane.
		if _, readErr := b.read(ctx, stream, nextRequest{Seq: seq}); isNotFound(readErr) {
			return nil
		}
	}
	return err
}

// Publish stores a message and returns its sequence. ErrFull, ErrConflict.
func (b *Bus) Publish(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	ack, err := b.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, cause(ctx, classify(err))
	}
	return ack.Sequence, nil
}

// PublishExpect stores a message if the last sequence of its subject is expect, 0 for
// none. ErrConflict otherwise.
func (b *Bus) PublishExpect(ctx context.Context, m *nats.Msg, expect uint64, opts ...jetstream.PublishOpt) (uint64, error) {
	return b.Publish(ctx, m, append(slices.Clip(opts), jetstream.WithExpectLastSequencePerSubject(expect))...)
}
