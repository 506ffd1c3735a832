package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	// Origin is where the bad value is.
	Origin Origin
	// Key as the user wrote it, with its section: "worker.capacity". Empty when the
	// whole file is meant.
	Key string
	// Text says what is wrong. It never holds a value that may be secret.
	Text string
}

// String is "file:line: key: what is wrong".
func (p Problem) String() string {
	parts := make([]string, 0, 3)
	if p.Origin.Name != "" {
		parts = append(parts, p.Origin.String())
	}
	// A variable or flag names its key already.
	if p.Key != "" && p.Origin.Source <= SourceFile {
		parts = append(parts, p.Key)
	}
	return strings.Join(append(parts, p.Text), ": ")
}

// String is "default", "file:line", the variable, or "--flag".
func (o Origin) String() string {
	switch {
	case o.Name == "":
		return "default"
	case o.Line > 0:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	default:
		return o.Name
	}
}

// Problems is every Problem of a configuration, in the order of the file, then the
// environment, then the flags.
//
//nolint:errname // the word that a user of the package reads: config.Problems
type Problems struct{ List []Problem }

// Error has a line for each problem.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

func (p *Problems) add(at Origin, key, format string, args ...any) {
	p.List = append(p.List, Problem{Origin: at, Key: key, Text: fmt.Sprintf(format, args...)})
}

// err is nil when there is no problem: a nil *Problems in an error is not nil.
func (p *Problems) err() error {
	if len(p.List) == 0 {
		return nil
	}
	slices.SortStableFunc(p.List, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Origin.Source, b.Origin.Source), cmp.Compare(a.Origin.Line, b.Origin.Line))
	})
	return p
}
