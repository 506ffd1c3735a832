package policy

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxLineBytes bounds what is parsed: the parser and the walk recurse.
	maxLineBytes = 32 << 10
	// maxDepth bounds shells in shells.
	maxDepth = 4
	// maxCommands bounds what is looked at in one line, maxSuspectBytes what deny rules are
	// tried on: a line must not make the decision slow.
	maxCommands     = 512
	maxSuspectBytes = 512 << 10
)

// line is what a shell line does, as far as that can be known.
type line struct {
	// commands must each be allowed by a rule.
	commands []string
	// suspects are texts that deny rules are tried on: the commands, and all that may
	// be one.
	suspects []string
	// writes and reads are the files of redirections.
	writes, reads []string
	suspectBytes  int
	// unsafe says why no rule may allow the line; empty when one may.
	unsafe string
	// opaque: deny rules can't see all that the line may run.
	opaque bool
	// moves: the line changes the directory, so that relative paths are not known.
	moves bool
}

func (l *line) refuse(why string) {
	if l.unsafe == "" {
		l.unsafe = why
	}
}

func (l *line) hide(why string) {
	l.opaque = true
	l.refuse(why)
}

// parseLine looks into a shell line. It never fails: what it doesn't understand makes the
// line unsafe and opaque.
func parseLine(text string) *line {
	l := &line{}
	l.parse(text, 0)
	if len(l.commands) == 0 {
		l.refuse("there is no command in the line")
	}
	if l.moves && l.relativeFiles() {
		l.refuse("a redirection to a relative path, in a line that changes the directory")
	}
	return l
}

// argvLine looks into a command that is started without a shell.
func argvLine(argv []string) *line {
	l := &line{}
	args := make([]word, len(argv))
	for i, a := range argv {
		if strange(a, "\t\n\r") {
			l.hide("characters that can't be seen")
		}
		args[i] = word{text: markBlanks(a), fixed: true}
	}
	if len(args) == 0 {
		l.hide("there is no command")
		return l
	}
	l.command(args, 0)
	if len(l.commands) == 0 {
		l.refuse("there is no command in the line")
	}
	return l
}

func (l *line) relativeFiles() bool {
	for _, files := range [][]string{l.writes, l.reads} {
		for _, f := range files {
			if !strings.HasPrefix(f, "/") {
				return true
			}
		}
	}
	return false
}

func (l *line) parse(text string, depth int) {
	if len(text) > maxLineBytes || depth > maxDepth {
		l.hide("the line is too long or too deep to be understood")
		l.suspect(text)
		return
	}
	// A carriage return is white space for some and part of a name for others.
	if strange(text, "\t\n") {
		l.hide("characters that can't be seen")
	}
	// Two places where shells and the parser differ, so that it would take a command for
	// text: a comment ends with its line, also behind a '\', and the end of a here-document
	// counts after such lines were joined.
	if strings.Contains(text, "\\\n") && (strings.Contains(text, "#") || strings.Contains(text, "<<")) {
		l.hide("a line that is continued, and a comment or a here-document")
		l.suspectText(text)
	}
	file, ok := parseShell(text)
	if !ok {
		l.hide("the line is no shell line that can be understood")
		l.suspectText(text)
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		l.node(n, depth)
		return true
	})
}

// parseShell parses Bash, which has nearly all that other shells have: what they read
// otherwise is refused in node.
func parseShell(text string) (file *syntax.File, ok bool) {
	// The text is a model's. A panic of the parser must not allow anything, nor end a
	// worker that serves others.
	defer func() {
		if recover() != nil {
			file, ok = nil, false
		}
	}()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	return file, err == nil
}

// node takes what matters from a node; syntax.Walk visits those below it.
func (l *line) node(n syntax.Node, depth int) {
	switch n := n.(type) {
	case *syntax.CallExpr:
		if len(n.Assigns) > 0 {
			// PATH=x git status; and PATH=x; git status.
			l.refuse("a variable is set")
		}
		if len(n.Args) > 0 {
			l.command(renderWords(n.Args), depth)
		}
	case *syntax.Redirect:
		l.redirect(n)
	case *syntax.ParamExp:
		l.expansion(n)
	case *syntax.ForClause:
		if n.Select {
			l.refuse("select sets a variable from the input")
		}
	case *syntax.WordIter:
		// A loop over PATH sets it like an assignment; shells have such names in small
		// letters too.
		if name := n.Name.Value; (len(name) != 1 || name < "a" || name > "z") && name != "file" && name != "dir" {
			l.refuse("a loop's variable must be one small letter, file or dir")
		}
	case *syntax.FuncDecl:
		l.refuse("a function is declared")
	case *syntax.DeclClause:
		l.refuse(n.Variant.Value + " sets variables")
	case *syntax.ArithmCmd, *syntax.ArithmExp, *syntax.CStyleLoop, *syntax.LetClause, *syntax.BinaryArithm, *syntax.UnaryArithm:
		// a[$(command)] in the value of a variable is run.
		l.refuse("arithmetic can run what variables hold")
	case *syntax.TestClause:
		l.refuse("[[ can run what variables hold")
	case *syntax.TimeClause:
		l.refuse("time runs another command")
	case *syntax.CoprocClause:
		l.refuse("coproc")
	case *syntax.TestDecl:
		l.hide("a test is declared")
	case *syntax.ExtGlob:
		l.refuse("shells read an extended glob differently")
	case *syntax.CmdSubst:
		if n.TempFile || n.ReplyVar {
			l.hide("shells read ${ differently")
		}
	case *syntax.Stmt:
		if n.Coprocess || n.Disown {
			l.refuse("shells read |& and &| differently")
		}
	}
}

// expansion accepts $x, ${x}, ${x:-default}, ${x%suffix} and their like.
func (l *line) expansion(p *syntax.ParamExp) {
	if p.Excl || p.Flags != nil || p.NestedParam != nil || p.Names != 0 {
		l.hide("an indirect expansion")
		return
	}
	if p.Width || p.IsSet || p.Index != nil || p.Slice != nil || p.Repl != nil || len(p.Modifiers) > 0 {
		l.refuse("an expansion that can run what variables hold")
		return
	}
	if p.Exp == nil {
		return
	}
	switch p.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.DefaultUnset, syntax.DefaultUnsetOrNull,
		syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
	default:
		l.refuse("an expansion that sets a variable or runs what it holds")
	}
}

// redirect takes the files that a redirection reads or writes.
func (l *line) redirect(r *syntax.Redirect) {
	if r.N != nil && strings.Trim(r.N.Value, "0123456789") != "" {
		l.refuse("a redirection sets a variable")
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return // text; what is substituted in it is visited
	default:
	}
	target := renderWord(r.Word)
	switch r.Op {
	case syntax.DplIn, syntax.DplOut:
		if target.fixed && strings.Trim(target.text, "0123456789-") == "" {
			return
		}
	default:
	}
	if !target.fixed || target.text == "" {
		l.refuse("a redirection to a place that isn't fixed")
		return
	}
	file := unmarkBlanks(target.text)
	clean := path.Clean(file)
	switch {
	case clean == "/dev/null", clean == "/dev/stdin", clean == "/dev/stdout", clean == "/dev/stderr":
		return
	case strings.HasPrefix(clean, "/dev/tcp/"), strings.HasPrefix(clean, "/dev/udp/"):
		l.refuse("a redirection to the network")
	case r.Op == syntax.RdrIn:
		l.reads = append(l.reads, file)
	default:
		l.writes = append(l.writes, file)
	}
}
