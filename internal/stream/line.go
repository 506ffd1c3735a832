//go:build unix

package stream

import (
	"bufio"
	"errors"
	"io"
)

const (
	// maxLineBytes is the longest line of events. Written as an update it takes at most
	// twice as much, and a message between agent and client may have 32 MiB.
	maxLineBytes = 16 << 20
	// keptLineBytes is what is kept of a longer line, for whoever looks for the reason.
	keptLineBytes = 4 << 10
	lineBuffer    = 64 << 10
)

// lineReader cuts a byte stream into lines of a bounded length.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, maxBytes int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, lineBuffer), max: maxBytes}
}

// next gives the next line without its end, the caller's to keep. A line that is too long
// is cut to keptLineBytes and whole is false. A last line without a line feed counts;
// after it comes the reader's error.
func (l *lineReader) next() (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := l.r.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		if whole = whole && len(line)+len(part) <= l.max; whole {
			line = append(line, part...)
		} else if missing := keptLineBytes - len(line); missing > 0 {
			line = append(line, part[:min(missing, len(part))]...)
		} else if missing < 0 {
			line = append([]byte(nil), line[:keptLineBytes]...) // gives the rest back
		}
		switch {
		case ended:
			return line, whole, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(line) > 0:
			return line, whole, nil
		default:
			return nil, false, err
		}
	}
}
