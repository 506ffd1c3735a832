package policy

import (
	"slices"
	"strings"
)

// subject is one thing that a call is about.
type subject struct {
	sort subjectSort
	// kind of the rules that can allow it.
	kind string
	text string
	at   place
	url  address
	// suspect: it is there for deny rules only.
	suspect bool
	// unseen: only a rule that names the tool, without a pattern, may allow it.
	unseen bool
}

type subjectSort int

const (
	aboutCommand subjectSort = iota
	aboutPath
	aboutURL
	aboutTitle
)

// about is all that a call is about.
type about struct {
	kind, tool string
	// stated is the kind that the agent gave.
	stated   string
	subjects []subject
	// unsafe says why no rule may allow the call.
	unsafe string
	// opaque: deny rules can't see all that it may run; doubtful: not all that it is.
	opaque, doubtful bool
}

// examine finds out what a call is about, for a session in the directory cwd.
func examine(c *Call, cwd string) *about {
	a := &about{kind: c.kind(), stated: c.Kind, tool: strings.ToLower(c.Tool), unsafe: c.Doubt, doubtful: c.Doubt != ""}
	if c.executes() {
		a.commands(c, cwd)
	} else {
		for _, p := range c.Paths {
			a.add(subject{sort: aboutPath, kind: a.kind, at: locate(p, cwd, cwd)})
		}
	}
	for _, s := range c.URLs {
		u, ok := parseAddress(s)
		if !ok {
			a.doubt("a URL can't be understood")
			a.doubtful = true
			u = address{rest: s}
		}
		// A command's own URLs are in its line.
		a.add(subject{sort: aboutURL, kind: a.kind, url: u, text: s, suspect: c.executes()})
	}
	if !slices.ContainsFunc(a.subjects, func(s subject) bool { return !s.suspect }) && !c.executes() {
		a.title(c)
	}
	for i := range a.subjects {
		s := &a.subjects[i]
		if s.sort == aboutPath && !s.suspect && !s.at.known {
			a.doubt("a path can't be understood")
		}
	}
	return a
}

func (a *about) add(s subject) { a.subjects = append(a.subjects, s) }

func (a *about) doubt(why string) {
	if a.unsafe == "" {
		a.unsafe = why
	}
}

func (a *about) title(c *Call) {
	a.add(subject{sort: aboutTitle, kind: a.kind, text: c.Title})
	if strange(c.Title, "\t\n") {
		a.doubt("the title has characters that can't be seen")
	}
}

func (a *about) commands(c *Call, cwd string) {
	base := cwd
	if c.Dir != "" {
		dir := locate(c.Dir, cwd, cwd)
		base = dir.whole
		if !dir.known || !dir.inside {
			a.doubt("the command runs outside of the session's directory")
		}
	}
	if c.unseen() {
		a.opaque = true
		a.title(c)
		a.subjects[len(a.subjects)-1].unseen = true
	}
	for _, l := range c.lines() {
		if l.unsafe != "" {
			a.doubt(l.unsafe)
		}
		a.opaque = a.opaque || l.opaque
		for _, text := range l.commands {
			a.add(subject{sort: aboutCommand, kind: kindExecute, text: text})
		}
		for _, text := range l.suspects {
			a.add(subject{sort: aboutCommand, kind: kindExecute, text: text, suspect: true})
		}
		for _, file := range l.writes {
			a.add(subject{sort: aboutPath, kind: kindEdit, at: locate(file, base, cwd)})
		}
		for _, file := range l.reads {
			a.add(subject{sort: aboutPath, kind: kindRead, at: locate(file, base, cwd), suspect: true})
		}
	}
	for _, p := range c.Paths {
		a.add(subject{sort: aboutPath, kind: c.Kind, at: locate(p, base, cwd), suspect: true})
	}
}

// allowedBy says whether an allow rule is about the subject.
func (s *subject) allowedBy(r *Rule, tool string) bool {
	if !r.names(s.kind, tool, true) || s.unseen && (!r.bare || isKind(r.name)) {
		return false
	}
	if r.bare {
		return true
	}
	switch s.sort {
	case aboutCommand:
		return r.command.matches(s.text, false)
	case aboutPath:
		return r.matchesPath(s.at, true)
	case aboutURL:
		return r.matchesURL(s.url, true)
	case aboutTitle:
		// The title of an edit is no path, and that of a fetch no address.
		return !isFileKind(s.kind) && s.kind != kindFetch && s.text != "" && r.command.matches(s.text, false)
	}
	return false
}

// deniedBy says whether a deny rule is about the subject.
func (s *subject) deniedBy(r *Rule, a *about) bool {
	if !a.namedForDeny(r, s) {
		return false
	}
	if r.bare {
		return true
	}
	switch s.sort {
	case aboutCommand:
		return r.command.matches(s.text, false) || strings.ContainsRune(s.text, wordBlank) && r.command.matches(unmarkBlanks(s.text), false)
	case aboutPath:
		return r.matchesPath(s.at, false)
	case aboutURL:
		return r.matchesURL(s.url, false) || r.command.matches(s.text, true)
	case aboutTitle:
		return r.command.matches(s.text, true)
	}
	return false
}

// namedForDeny is wider than names: a deny of edit covers what deletes or moves, a rule
// for commands every command, and one with a pattern also calls whose kind says nothing.
func (a *about) namedForDeny(r *Rule, s *subject) bool {
	if r.names(s.kind, a.tool, false) || r.names(a.kind, a.tool, false) && s.sort != aboutPath {
		return true
	}
	switch s.sort {
	case aboutPath:
		if r.name == kindEdit && (s.kind == kindDelete || s.kind == kindMove) {
			return true
		}
		return !r.bare && isFileKind(r.name) && (vague(s.kind) || a.kind == kindExecute && s.suspect)
	case aboutURL:
		return !r.bare && r.name == kindFetch
	case aboutCommand, aboutTitle:
	}
	return false
}
