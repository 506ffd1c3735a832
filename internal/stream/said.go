//go:build unix

package stream

import (
	"crypto/sha256"
	"hash"
	"strings"
)

// said remembers what a run's messages carried, without keeping their texts.
type said struct {
	each map[[sha256.Size]byte]bool
	all  hash.Hash // of their texts one after the other
}

func (s *said) add(text string) {
	if s.each == nil {
		s.each, s.all = map[[sha256.Size]byte]bool{}, sha256.New()
	}
	s.each[sum(text)] = true
	_, _ = s.all.Write([]byte(text)) // a hash takes everything
}

// carried says whether a response is empty, or was one of the messages (white space around
// it apart), or all of them.
func (s *said) carried(response string) bool {
	if strings.TrimSpace(response) == "" {
		return true
	}
	if s.each == nil {
		return false
	}
	whole := sha256.Sum256([]byte(response))
	return s.each[sum(response)] || string(whole[:]) == string(s.all.Sum(nil))
}

func sum(text string) [sha256.Size]byte { return sha256.Sum256([]byte(strings.TrimSpace(text))) }
