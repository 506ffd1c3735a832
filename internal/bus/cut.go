package bus

import (
	"context"
	"errors"
	"fmt"
)

// Cut says which messages of a stream go.
type Cut struct {
	// Subject of the messages; wildcards are allowed.
	Subject string `json:"filter"`
	// Before is the first sequence that stays; 0: Keep decides. Not both.
	Before uint64 `json:"seq,omitempty"`
	// Keep is how many of the last messages stay.
	Keep uint64 `json:"keep,omitempty"`
}

// errReady: on READY a purge moves the ack floor past other lanes' batons, which are then
// never redelivered.
var errReady = errors.New("batons are deleted by their sequence only")

// Cut deletes messages of one subject. Nothing there is success. READY is refused: this is
// the only purge there is, so that the refusal holds for all of them.
func (b *Bus) Cut(ctx context.Context, stream string, c Cut) error {
	if stream == b.Fleet().ReadyStream() {
		return fmt.Errorf("cut %s: %w", stream, errReady)
	}
	_, err := b.api(ctx, "STREAM.PURGE", stream, c)
	return err
}
