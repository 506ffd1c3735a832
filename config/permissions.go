package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"raiderfleet/internal/policy"
)

// Placeholders are the words that a stream raider's command may have. Each becomes a
// whole argument, or a part of one; none goes through a shell.
func Placeholders() []string {
	return []string{"{prompt}", "{session}", "{cwd}", "{engine}", "{model}", "{pack}"}
}

// checkPlaceholders refuses what looks like a placeholder and is none: it would reach the
// command as it is.
func checkPlaceholders(command []string) string {
	for i, word := range command {
		for _, found := range regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*\}`).FindAllString(word, -1) {
			if !slices.Contains(Placeholders(), found) {
				return fmt.Sprintf("unknown placeholder %s%s (there are %s)", found, suggest(found, Placeholders()), strings.Join(Placeholders(), " "))
			}
			if i == 0 {
				return "the program can't hold a placeholder, only its arguments can"
			}
		}
	}
	return ""
}

// checkStreamOnly is for keys that only a stream raider is told.
func checkStreamOnly(r *Raider, given bool) string {
	if given && (r.Kind == KindACP || r.Kind == KindDemo) {
		return fmt.Sprintf("is only for kind stream, not %s", r.Kind)
	}
	return ""
}

// compilePermissions compiles the rules of a raider. What is wrong with one is told with
// its own line.
func (l *loader) compilePermissions(e *raiderEntry) *policy.Policy {
	p := &e.raider.Permissions
	c := policy.Config{Mode: policy.Mode(p.Mode), Allow: p.Allow, Deny: p.Deny}
	if !slices.Contains(policy.Modes(), p.Mode) {
		c.Mode = "" // said already, with its line
	}
	compiled, err := policy.Compile(c)
	if err == nil {
		return compiled
	}
	all, ok := errors.AsType[*policy.Errors](err)
	if !ok {
		l.wrong(l.c.origins[e.label], e.label+".permissions", "%v", err)
		return new(policy.Policy)
	}
	for _, problem := range all.List {
		path := e.label + ".permissions." + problem.List
		at := l.c.origins[path]
		if lines := l.lines[path]; problem.Index < len(lines) {
			at.Line = lines[problem.Index]
		}
		l.wrong(at, path, "%v", problem)
	}
	return new(policy.Policy)
}
