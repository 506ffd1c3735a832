package policy

import "slices"

// RuleFor returns the narrowest rule that names a call of a session in the directory
// cwd: the exact command, path or URL; of a title, the tool and that title. False when no
// single rule can: several commands, paths or URLs, a redirection that writes, a command
// that isn't fixed, nothing to name. The rule can be parsed, and it allows that very call
// where no rule denies it.
func RuleFor(c Call, cwd string) (string, bool) {
	a := examine(&c, cwd)
	if a.unsafe != "" {
		return "", false
	}
	var named []subject
	for _, s := range a.subjects {
		if s.suspect || slices.ContainsFunc(named, func(n subject) bool { return n.sort == s.sort && n.same(&s) }) {
			continue
		}
		named = append(named, s)
	}
	if len(named) != 1 {
		return "", false
	}
	text := named[0].rule(a.tool)
	r, err := ParseRule(text)
	if err != nil || !named[0].allowedBy(&r, a.tool) {
		return "", false
	}
	return text, true
}

func (s *subject) same(o *subject) bool {
	return s.kind == o.kind && s.text == o.text && s.at == o.at && s.url == o.url
}

// rule is the text of the narrowest rule; what is no rule is refused by the parser.
func (s *subject) rule(tool string) string {
	name := s.kind
	if vague(name) && tool != "" {
		name = tool
	}
	switch s.sort {
	case aboutCommand:
		return name + "(" + quoteGlob(s.text, true) + ")"
	case aboutPath:
		return name + "(" + quoteGlob(s.at.text, false) + ")"
	case aboutURL:
		return name + "(" + s.url.scheme + "://" + s.url.host + quoteGlob(s.url.rest, false) + ")"
	case aboutTitle:
		// A kind alone would name every tool that has the title.
		if tool != "" {
			name = tool
		}
		return name + "(" + quoteGlob(s.text, false) + ")"
	}
	return ""
}
