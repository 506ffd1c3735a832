package bus

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Sentinels for what callers decide on. Each wraps the server's error.
var (
	// ErrNotFound: there is no message, key or object.
	ErrNotFound = errors.New("not found")
	// ErrConflict: a compare-and-set was lost, err_code 10071: another message of the
	// subject is stored, an earlier try of one's own perhaps. Read before deciding.
	ErrConflict = errors.New("changed by another")
	// ErrInFlight: another message of the subject is on its way to the replicas, err_code
	// 10164, an earlier try of one's own perhaps. It may still come to nothing, when the
	// leader changes: nothing is decided, and Unclear says so.
	ErrInFlight = errors.New("another write is in flight")
	// ErrFull: the stream takes no more of this subject, err_code 10077. On READY it
	// says that the lane has its baton already.
	ErrFull = errors.New("subject is full")
	// ErrNoSpace: the server takes nothing more, of any subject: its disk or memory, or what
	// the account may use, is full. Nothing was stored; it may be when there is room again.
	ErrNoSpace = errors.New("NATS has no space left")
	// ErrCorrupt: what is stored can't be read, and reading it again doesn't help.
	ErrCorrupt = errors.New("can't be read")
)

const (
	codeWrongLastSequence         = 10071
	codeWrongLastSequenceConstant = 10164
	codeStoreFailed               = 10077
	codeMessageNotFound           = 10037
	codeSequenceNotFound          = 10043
	codeDeleteFailed              = 10057
	codeAccountResourcesExceeded  = 10002
	codeInsufficientResources     = 10023
	codeMemoryExceeded            = 10028
	codeStorageExceeded           = 10047
)

// classified is an error of the server under one of our sentinels.
type classified struct{ sentinel, cause error }

func (e *classified) Error() string   { return e.sentinel.Error() + ": " + e.cause.Error() }
func (e *classified) Unwrap() []error { return []error{e.sentinel, e.cause} }

// classify puts an error of the server under its sentinel.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrObjectNotFound) {
		return &classified{ErrNotFound, err}
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch api.ErrorCode {
		case codeMessageNotFound:
			return &classified{ErrNotFound, err}
		case codeWrongLastSequence:
			return &classified{ErrConflict, err}
		case codeWrongLastSequenceConstant:
			return &classified{ErrInFlight, err}
		case codeAccountResourcesExceeded, codeInsufficientResources, codeMemoryExceeded, codeStorageExceeded:
			return &classified{ErrNoSpace, err}
		case codeStoreFailed:
			// The code stands for every reason why a message was not stored.
			if strings.Contains(api.Description, "maximum") {
				return &classified{ErrFull, err}
			}
		}
	}
	return err
}

// Unclear says whether the request of which err came may have been carried out, or may
// be if it is repeated: no answer, or a server without a leader or with a full disk, as
// opposed to a refusal.
func Unclear(err error) bool {
	if err == nil || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrFull) {
		return false
	}
	if errors.Is(err, ErrInFlight) || errors.Is(err, ErrNoSpace) {
		return true
	}
	var api *jetstream.APIError
	return !errors.As(err, &api) || api.Code >= 500
}

// NoStream says whether err is that a stream is not there, or not now: nobody answered for it.
func NoStream(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoStreamResponse)
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }
