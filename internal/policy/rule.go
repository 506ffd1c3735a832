package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxRuleBytes bounds a rule: it is shown to people.
const maxRuleBytes = 4 << 10

// Rule is a rule that was parsed. It doesn't change; the zero Rule matches nothing.
type Rule struct {
	text string
	// name is a kind, or the name of a tool in lower case, perhaps with '*' in it.
	name string
	// toolGlob is set where name has a '*'.
	toolGlob glob
	// bare: no pattern, whatever the call is about.
	bare bool
	// The pattern as one for commands and titles, for paths, and for URLs (nil when it
	// can't be one).
	command, path glob
	absolute      bool
	anywhere      bool
	url           *urlPattern
}

// String is the rule as it was written.
func (r Rule) String() string { return r.text }

// RuleError says what is wrong with a rule, or with the mode.
type RuleError struct {
	// List and Index say where the rule stands: "allow", "deny", or "mode" (then Index
	// is 0). Empty for a rule that is parsed alone.
	List  string
	Index int
	// Rule is the text.
	Rule string
	// Offset is the byte of the rule where the problem is.
	Offset int
	// Text says what is wrong.
	Text string
}

// Error names the rule and the place in it.
func (e *RuleError) Error() string {
	if e.List == "mode" {
		return e.Text
	}
	return fmt.Sprintf("rule %q, at %d: %s", e.Rule, e.Offset, e.Text)
}

// ParseRule parses a rule. Its error is a *RuleError.
func ParseRule(text string) (Rule, error) {
	r, offset, problem := parseRule(text)
	if problem != "" {
		return Rule{}, &RuleError{Rule: text, Offset: offset, Text: problem}
	}
	return r, nil
}

func parseRule(text string) (r Rule, offset int, problem string) {
	switch {
	case text == "":
		return Rule{}, 0, "is empty"
	case len(text) > maxRuleBytes:
		return Rule{}, maxRuleBytes, fmt.Sprintf("is longer than %d bytes", maxRuleBytes)
	case !utf8.ValidString(text):
		return Rule{}, 0, "is no valid UTF-8"
	}
	for i, c := range text {
		if strange(string(c), "") {
			return Rule{}, i, fmt.Sprintf("a rule can't hold the character %U", c)
		}
	}
	end := strings.IndexByte(text, '(')
	name := text
	if end >= 0 {
		name = text[:end]
	}
	if offset, problem = checkRuleName(name); problem != "" {
		return Rule{}, offset, problem
	}
	r = Rule{text: text, name: ruleName(name), bare: end < 0}
	if strings.Contains(r.name, "*") {
		r.toolGlob = compileGlob(r.name, false)
	}
	if r.bare {
		return r, 0, ""
	}
	if !strings.HasSuffix(text, ")") {
		if last := strings.LastIndexByte(text, ')'); last > end {
			return Rule{}, last + 1, "nothing may follow the closing parenthesis"
		}
		return Rule{}, len(text), "the closing parenthesis is missing"
	}
	pattern := text[end+1 : len(text)-1]
	if pattern == "" {
		return Rule{}, end + 1, "the pattern is empty; without parentheses the rule means every call"
	}
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '\\' {
			continue
		}
		if i++; i == len(pattern) {
			return Rule{}, end + i, `a '\' takes the meaning of the character behind it: the closing parenthesis is missing`
		}
	}
	offset, problem = r.compile(pattern)
	return r, end + 1 + offset, problem
}

func checkRuleName(name string) (offset int, problem string) {
	if name == "" {
		return 0, "must begin with a kind or a tool, such as execute or edit"
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_'
		if i == 0 && !letter {
			return 0, "must begin with a kind or a tool, such as execute or edit"
		}
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("-.:/*", rune(c)) {
			return i, fmt.Sprintf("the name of a kind or tool can't hold %q", rune(name[i]))
		}
	}
	return 0, ""
}

// compile compiles the pattern for all that the rule can be matched against.
func (r *Rule) compile(pattern string) (offset int, problem string) {
	r.command = compileGlob(pattern, false)
	clean := strings.TrimPrefix(pattern, "./")
	r.path, r.absolute = compileGlob(clean, true), strings.HasPrefix(clean, "/")
	r.anywhere = strings.HasPrefix(clean, "**/")
	if isFileKind(r.name) && !strings.Contains(pattern, "://") {
		at := 0
		for element := range strings.SplitSeq(pattern, "/") {
			if element == ".." {
				return at, "'..' never matches: paths are cleaned first; write the whole path"
			}
			at += len(element) + 1
		}
	}
	u, offset, problem := parseURLPattern(pattern)
	if problem == "" {
		r.url = u
		return 0, ""
	}
	if r.name == kindFetch || strings.Contains(pattern, "://") && r.name != kindExecute {
		return offset, problem
	}
	return 0, ""
}

// names says whether the rule names a call. allow is strict: a word that is a kind means
// the kind that the agent gave, all else the tool.
func (r *Rule) names(kind, tool string, allow bool) bool {
	switch {
	case r.name == "":
		return false
	case isKind(r.name) && (allow || r.name == kind):
		return r.name == kind
	case r.toolGlob != nil:
		return tool != "" && r.toolGlob.matches(tool, false)
	}
	return r.name == tool || !allow && r.name == ruleName(tool)
}
