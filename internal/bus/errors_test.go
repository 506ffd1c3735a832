package bus

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func apiError(code int, errCode jetstream.ErrorCode, text string) error {
	return &jetstream.APIError{Code: code, ErrorCode: errCode, Description: text}
}

func TestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		err      error
		sentinel error // nil: none of ours
		unclear  bool
	}{
		{"wrong last sequence", apiError(400, 10071, "wrong last sequence: 5"), ErrConflict, false},
		{"wrong last sequence, in flight", apiError(400, 10164, "wrong last sequence"), ErrInFlight, true},
		{"subject is full", apiError(503, 10077, "maximum messages per subject exceeded"), ErrFull, false},
		{"the stream's own bytes", apiError(503, 10077, "maximum bytes exceeded"), ErrFull, false},
		{"account's limit", apiError(400, 10002, "resource limits exceeded for account"), ErrNoSpace, true},
		{"server's limit", apiError(503, 10023, "insufficient resources"), ErrNoSpace, true},
		{"server's memory", apiError(500, 10028, "insufficient memory resources available"), ErrNoSpace, true},
		{"server's disk", apiError(500, 10047, "insufficient storage resources available"), ErrNoSpace, true},
		{"store failed", apiError(503, 10077, "no space left on device"), nil, true},
		{"no message", apiError(404, 10037, "no message found"), ErrNotFound, false},
		{"no message, library", jetstream.ErrMsgNotFound, ErrNotFound, false},
		{"no key", jetstream.ErrKeyNotFound, ErrNotFound, false},
		{"no object", jetstream.ErrObjectNotFound, ErrNotFound, false},
		{"no leader", apiError(503, 10008, "JetStream system temporarily unavailable"), nil, true},
		{"bad request", apiError(400, 10003, "bad request"), nil, false},
		{"no stream", apiError(404, 10059, "stream not found"), nil, false},
		{"timeout", context.DeadlineExceeded, nil, true},
		{"no responders", nats.ErrNoResponders, nil, true},
		{"link", ErrDisconnected, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := fmt.Errorf("write: %w", classify(c.err))
			for _, s := range []error{ErrConflict, ErrFull, ErrNotFound, ErrNoSpace} {
				if is := errors.Is(got, s); is != errors.Is(c.sentinel, s) {
					t.Errorf("errors.Is(%v, %v) = %v", got, s, is)
				}
			}
			if !errors.Is(got, c.err) {
				t.Errorf("%v does not wrap the server's error", got)
			}
			if Unclear(got) != c.unclear {
				t.Errorf("Unclear(%v) = %v", got, !c.unclear)
			}
		})
	}
	if classify(nil) != nil || Unclear(nil) {
		t.Error("nil is no error")
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"nats://h:4222":                         "nats://h:4222",
		"nats://bob:s3cret@h:4222":              "nats://h:4222",
		"bob:s3cret@h":                          "nats://h",
		"tls://bob:s3@cret@h":                   "tls://h",
		"tls://bob:s3,cret@h":                   "tls://h",
		"s3cret@h":                              "nats://h",
		"nats://a:s3cret@h1,nats://b:s3cret@h2": "nats://h2",
		"a:s3cret@h1,nats://b:s3cret@h2":        "nats://h2",
	} {
		if got := redact([]string{in}); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
}
