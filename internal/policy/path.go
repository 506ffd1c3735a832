package policy

import (
	"net/url"
	"path"
	"strings"
)

// maxPathBytes is more than any system takes.
const maxPathBytes = 4 << 10

// place is a cleaned path.
type place struct {
	// text is relative to the session's directory where the path is in it, else absolute.
	text string
	// whole is absolute.
	whole  string
	inside bool
	// known is false for what can't be cleaned: '~' (whose?), a relative path without a
	// directory, characters that nobody sees.
	known bool
}

// locate cleans a path. base is where a relative one starts (the session's directory, or
// the one that the call names), cwd the session's directory.
func locate(p, base, cwd string) place {
	if rest, ok := strings.CutPrefix(p, "file://"); ok {
		u, err := url.Parse(p)
		if err != nil || u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return place{text: rest, whole: rest}
		}
		p = u.Path
	}
	unknown := place{text: p, whole: p}
	if p == "" || len(p) > maxPathBytes || strange(p, "") || strings.HasPrefix(p, "~") {
		return unknown
	}
	if !strings.HasPrefix(p, "/") {
		if !strings.HasPrefix(base, "/") {
			return unknown
		}
		p = base + "/" + p
	}
	p = path.Clean(p)
	out := place{text: p, whole: p, known: true}
	if rel, ok := within(p, cwd); ok {
		out.text, out.inside = rel, true
	}
	return out
}

// within is the clean path p relative to dir.
func within(p, dir string) (string, bool) {
	if !strings.HasPrefix(dir, "/") {
		return "", false
	}
	dir = path.Clean(dir)
	if p == dir {
		return ".", true
	}
	if dir != "/" {
		dir += "/"
	}
	return strings.CutPrefix(p, dir)
}

// matchesPath says whether the pattern means a place. Deny rules compare without case
// (some file systems do), see **/ as anywhere, and try what can't be cleaned as it is.
func (r *Rule) matchesPath(p place, allow bool) bool {
	switch {
	case r.path == nil:
		return false
	case allow && !p.known:
		return false
	case allow:
		if r.absolute {
			return r.path.matches(p.whole, false)
		}
		return p.inside && r.path.matches(p.text, false)
	}
	// dir/** is about dir too: who deletes or moves it does so with all that is in it.
	if r.path.matches(p.text, true) || r.path.matches(p.text+"/", true) || r.absolute && (r.path.matches(p.whole, true) || r.path.matches(p.whole+"/", true)) {
		return true
	}
	return r.anywhere && r.path.matches(strings.TrimPrefix(p.whole, "/"), true)
}

// powerful says whether a file in the session's directory gives power over what runs
// later or what is allowed: ModeAcceptEdits leaves those to a person.
func powerful(rel string) bool {
	for element := range strings.SplitSeq(strings.ToLower(rel), "/") {
		switch {
		case element == ".git", element == "fleet.yml", element == ".mcp.json", element == ".envrc",
			element == ".claude", element == ".codex", element == ".gemini", element == ".vscode",
			strings.HasPrefix(element, ".raider"):
			return true
		}
	}
	return false
}
