//go:build unix

package stream

import (
	"io"
	"slices"
	"strings"
	"sync"
)

const (
	// tailLines and tailBytes bound the last words that an error shows, as they do for
	// agents that speak ACP themselves.
	tailLines = 10
	tailBytes = 4096
	// maxStrayLines is how many lines that are no events a run may put on stderr.
	maxStrayLines = 100
)

// lastWords writes a run's stderr on, line by line, and keeps the last lines. Safe for
// many goroutines.
type lastWords struct {
	out io.Writer

	mu    sync.Mutex // guards the rest, and keeps lines whole
	lines []string
	stray int
}

// add takes a line of stderr.
func (w *lastWords) add(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(string(line))
}

// addStray takes a line of stdout that is no event.
func (w *lastWords) addStray(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stray++
	switch {
	case w.stray < maxStrayLines:
		w.addLocked(string(line[:min(len(line), keptLineBytes)]))
	case w.stray == maxStrayLines:
		w.addLocked("raiderfleet: more lines on stdout are no events; they are left out")
	}
}

func (w *lastWords) addLocked(line string) {
	line = strings.TrimRight(line, "\r")
	_, _ = io.WriteString(w.out, line+"\n") // nobody reads it any more
	if len(line) > tailBytes/2 {
		line = line[:tailBytes/2] + "…"
	}
	w.lines = append(w.lines, line)
	if len(w.lines) > tailLines {
		w.lines = slices.Delete(w.lines, 0, len(w.lines)-tailLines)
	}
}

// after puts the last lines below a text.
func (w *lastWords) after(text string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := strings.Join(w.lines, "\n")
	if len(last) > tailBytes {
		last = last[len(last)-tailBytes:]
	}
	if last == "" {
		return text
	}
	return text + "\n" + strings.ToValidUTF8(last, "?")
}
