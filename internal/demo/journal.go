package demo

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// journal tells a checker when turns ran; without a path it does nothing.
type journal struct{ path string }

// note appends one line in one write, so that many processes can share a file.
func (j journal) note(what, session, prompt string) error {
	if j.path == "" {
		return nil
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	prompt = strings.NewReplacer("\n", " ", "\r", " ").Replace(prompt)
	_, err = fmt.Fprintf(f, "%s %d %d %s %s\n", what, bootNanos(), os.Getpid(), session, prompt)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}
