package rpc

import (
	"bufio"
	"errors"
	"io"
)

const (
	defaultMaxLineBytes = 32 << 20
	// readBufferBytes holds a usual message whole, so that it is looked at in
	// place and copied once, when its params are handed over.
	readBufferBytes = 64 << 10
	// keptLineBytes is how much of an oversized line is kept, for SkipNoise.
	keptLineBytes = 4 << 10
)

// errLineTooLong comes with the first keptLineBytes of the line; the rest has
// been read and thrown away.
var errLineTooLong = errors.New("line too long")

// lineReader cuts a byte stream into lines.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, maxLineBytes int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, readBufferBytes), max: maxLineBytes}
}

// next returns the next line without its line feed. owned says that the line is
// the caller's to keep; else it is good until the next call. A last line
// without a line feed counts; after it comes io.EOF.
func (l *lineReader) next() (line []byte, owned bool, err error) {
	part, err := l.r.ReadSlice('\n')
	if err == nil {
		line = part[:len(part)-1]
		if len(line) > l.max {
			return line[:min(len(line), keptLineBytes)], false, errLineTooLong
		}
		return line, false, nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		if len(part) > 0 && errors.Is(err, io.EOF) {
			if len(part) > l.max {
				return part[:min(len(part), keptLineBytes)], false, errLineTooLong
			}
			return part, false, nil
		}
		return nil, false, err
	}
	return l.nextLarge(part)
}

// nextLarge goes on with a line that is larger than the read buffer.
func (l *lineReader) nextLarge(part []byte) (line []byte, owned bool, err error) {
	line = append(make([]byte, 0, min(4*len(part), l.max+1)), part...)
	tooLong := false
	for {
		part, err = l.r.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		if tooLong = tooLong || len(line)+len(part) > l.max; tooLong {
			line = line[:min(len(line), keptLineBytes):min(len(line), keptLineBytes)]
		} else {
			line = append(line, part...)
		}
		if ended || errors.Is(err, io.EOF) {
			if tooLong {
				return line, true, errLineTooLong
			}
			return line, true, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
	}
}
