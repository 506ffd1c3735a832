// Package policy decides whether a raider may make a tool call: it allows, denies, or
// says that somebody must be asked.
//
// A rule names a kind of tool or a tool and, in parentheses, a glob on what the call is
// about: `execute(git status*)`, `edit(src/**)`, `fetch(https://example.org/*)`, `read`.
// Deny rules win over allow rules, those over the rules of the session, those over the
// mode.
//
// A call is about one or more things: every command of its shell line, every file that
// the line writes to, every path, every URL; where there are none of these, its title.
// It is allowed only when each of them is allowed, and denied when any of them is denied.
// What can't be understood is never allowed by a rule, but deny rules still try: the two
// sides are not symmetric, and each errs towards not running something.
//
// The package does no I/O: symbolic links are not followed, programs are not looked up,
// variables have no values. All of it is safe for many goroutines. docs/permissions.md
// says what a user needs to know.
package policy
