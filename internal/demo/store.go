package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// errNoSession says that the state directory has no such session.
var errNoSession = errors.New("demo: no such session")

// maxAnswerBytes is how much of a turn's answer is kept for a later load.
const maxAnswerBytes = 64 << 10

// store keeps each session in a file of JSON lines: cwd first, then prompts,
// answers and choices. Lines are only appended, each in one write, so that a long session
// costs no more a turn than a short one and a kill can spoil only the last.
type store struct {
	dir string

	mu   sync.Mutex          // guards open
	open map[string]*os.File // kept open for the next line, until the process ends
}

func newStore(dir string) *store { return &store{dir: dir, open: map[string]*os.File{}} }

// entry is one line; one of the fields is set.
type entry struct {
	Cwd    *string `json:"cwd,omitempty"`
	Prompt *string `json:"prompt,omitempty"`
	Answer *string `json:"answer,omitempty"`
	// Chosen are all choices as they are from here on.
	Chosen *choices `json:"chosen,omitempty"`
}

func (s *store) path(id string) (string, error) {
	// The id comes from outside and becomes a file name.
	if id == "" || len(id) > 100 {
		return "", errNoSession
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return "", errNoSession
		}
	}
	return filepath.Join(s.dir, id+".jsonl"), nil
}

// create makes the session's file, whole or not at all.
func (s *store) create(id, cwd string) error {
	path, err := s.path(id)
	if err != nil {
		return err
	}
	line, err := json.Marshal(entry{Cwd: &cwd})
	if err != nil {
		return fmt.Errorf("encoding a session: %w", err)
	}
	if err := os.WriteFile(path+".new", append(line, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing a session: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing a session: %w", err)
	}
	return nil
}

func (s *store) add(id string, e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding a session: %w", err)
	}
	// The line break comes first: after a line that a kill cut short, this one
	// still stands alone.
	line = append([]byte{'\n'}, append(line, '\n')...)
	f, err := s.file(id)
	if err != nil {
		return err
	}
	if _, err := f.Write(line); err != nil {
		return fmt.Errorf("writing a session: %w", err)
	}
	return nil
}

// file opens a session's file for appending, once.
func (s *store) file(id string) (*os.File, error) {
	path, err := s.path(id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.open[id]; f != nil {
		return f, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) //nolint:gosec // the name is checked above
	if err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	s.open[id] = f
	return f, nil
}

// close closes the files.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.open {
		_ = f.Close() // every line has been written
		delete(s.open, id)
	}
}

// load reads a session's entries; lines cut short are left out.
func (s *store) load(id string) ([]entry, error) {
	path, err := s.path(id)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path) //nolint:gosec // the name is checked above
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoSession
	}
	if err != nil {
		return nil, fmt.Errorf("reading a session: %w", err)
	}
	var all []entry
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		var e entry
		if json.Unmarshal(line, &e) == nil {
			all = append(all, e)
		}
	}
	return all, nil
}
