package policy

import "strings"

// Mode says what happens to a call that no rule decides.
type Mode string

// The modes.
const (
	// ModeDefault asks. The empty Mode is the same.
	ModeDefault Mode = "default"
	// ModePlan denies what changes something and asks for the rest.
	ModePlan Mode = "plan"
	// ModeAcceptEdits allows edits of files in the session's directory and asks for the rest.
	ModeAcceptEdits Mode = "accept_edits"
	// ModeDontAsk denies.
	ModeDontAsk Mode = "dont_ask"
	// ModeBypass allows, where Scope.AllowBypass permits it; else it is ModeDefault.
	ModeBypass Mode = "bypass"
)

// Modes lists the modes, in the order of the documentation.
func Modes() []string {
	return []string{string(ModeDefault), string(ModePlan), string(ModeAcceptEdits), string(ModeDontAsk), string(ModeBypass)}
}

func (m Mode) valid() bool {
	switch m {
	case "", ModeDefault, ModePlan, ModeAcceptEdits, ModeDontAsk, ModeBypass:
		return true
	}
	return false
}

// The kinds of tools that ACP has. A call may have none, or one that is not known here.
const (
	kindRead    = "read"
	kindEdit    = "edit"
	kindDelete  = "delete"
	kindMove    = "move"
	kindSearch  = "search"
	kindExecute = "execute"
	kindThink   = "think"
	kindFetch   = "fetch"
	kindSwitch  = "switch_mode"
	kindOther   = "other"
)

// isKind says whether a word is a kind of ACP. In a rule such a word never means a tool.
func isKind(s string) bool {
	switch s {
	case kindRead, kindEdit, kindDelete, kindMove, kindSearch, kindExecute, kindThink, kindFetch, kindSwitch, kindOther:
		return true
	}
	return false
}

// isFileKind says whether calls of this kind are about files, so that a rule's pattern is
// one for paths.
func isFileKind(kind string) bool {
	switch kind {
	case kindRead, kindEdit, kindDelete, kindMove, kindSearch:
		return true
	}
	return false
}

// vague says that a kind doesn't tell what the call does.
func vague(kind string) bool { return !isKind(kind) || kind == kindOther }

// changing says whether a call of this kind counts as one that changes something. Only
// the kinds that can't are listed: what is missing, unknown, other or switches the mode
// (the way out of a plan) counts as changing.
func changing(kind string) bool {
	switch kind {
	case kindRead, kindSearch, kindThink, kindFetch:
		return false
	}
	return true
}

// ruleName is the name of a rule or tool in the form that is compared. `bash` and `shell`
// are what agents call the tool that runs command lines.
func ruleName(s string) string {
	s = strings.ToLower(s)
	if s == "bash" || s == "shell" {
		return kindExecute
	}
	return s
}
