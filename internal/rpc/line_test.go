package rpc

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

// letters is an endless line without a line feed.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Not parallel: what others allocate meanwhile would count.
//
//nolint:paralleltest // see above
func TestLongLineIsNotBuffered(t *testing.T) {
	const (
		limit = 1 << 20
		sent  = 64 << 20
		// The line up to the limit, and what it grew through.
		most = 16 << 20
	)
	l := newLineReader(io.MultiReader(io.LimitReader(letters{}, sent), strings.NewReader("\nnext\n")), limit)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	line, _, err := l.next()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errLineTooLong) || len(line) > keptLineBytes {
		t.Fatalf("%d bytes and %v, want at most %d and %v", len(line), err, keptLineBytes, errLineTooLong)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > most {
		t.Errorf("a line of %d bytes took %d bytes of memory, want at most %d", sent, used, most)
	}
	if line, _, err := l.next(); err != nil || string(line) != "next" {
		t.Errorf("after it %q and %v, want the next line", line, err)
	}
}
