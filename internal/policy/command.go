package policy

import (
	"slices"
	"strings"
)

// command takes one simple command: for allow rules its text, for deny rules all texts
// under which they may know it.
func (l *line) command(words []word, depth int) {
	if len(l.suspects) > maxCommands*8 || len(l.commands) > maxCommands {
		l.hide("the line has too many commands")
		return
	}
	l.suspectWords(words)
	program := words[0]
	if !program.fixed || program.text == "" {
		l.hide("the command isn't fixed")
		l.suspectTails(words, depth)
		return
	}
	for _, c := range program.text {
		if c <= ' ' || c > '~' {
			l.refuse("the command's name has characters beyond ASCII or blanks")
			break
		}
	}
	base := strings.ToLower(baseName(program.text))
	switch {
	case isShell(base):
		if l.shell(words, depth) {
			return
		}
	case runsAnother(base), evaluates(base):
		if evaluates(base) {
			l.hide(base + " runs text as commands")
		} else {
			l.refuse(base + " runs another command")
		}
		l.suspectTails(words, depth)
	case changesShell(base):
		l.refuse(base + " changes what later commands mean")
	case base == "cd", base == "pushd", base == "popd", base == "chdir":
		l.moves = true
	default:
		l.options(base, words, depth)
	}
	l.commands = append(l.commands, joinWords(words))
}

// shell looks into `sh -c script`. It says whether the script stands for the command.
func (l *line) shell(words []word, depth int) bool {
	switch {
	case len(words) == 3 && scriptOption(words[1]) && words[2].fixed:
		// What Codex sends for every command. The outer one adds nothing to the inner.
		l.parse(unmarkBlanks(words[2].text), depth+1)
		return true
	case len(words) > 1 && words[1].fixed && words[1].text != "" && words[1].text[0] != '-' && words[1].text[0] != '+':
		return false // a script in a file: a command as any other
	}
	l.hide("a shell runs text as commands")
	l.suspectTails(words, depth)
	return false
}

func scriptOption(w word) bool {
	switch w.text {
	case "-c", "-lc", "-cl", "-ec", "-ce", "-lec":
		return w.fixed
	}
	return false
}

// options refuses options with which well-known programs run others.
func (l *line) options(base string, words []word, depth int) {
	switch base {
	case "find", "fd", "fdfind":
		for _, w := range words[1:] {
			switch option, _, _ := strings.Cut(w.text, "="); {
			case strings.HasPrefix(w.text, string(unknownText)):
				l.refuse("options of " + base + " may be in what isn't fixed")
			case slices.Contains([]string{
				"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls",
				"-x", "--exec", "-X", "--exec-batch",
			}, option), base != "find" && (strings.HasPrefix(option, "-x") || strings.HasPrefix(option, "-X")):
				l.refuse(base + " " + option + " does more than to find")
				l.suspectTails(words, depth)
			}
		}
	case "git":
		l.git(words, depth)
	case "rg":
		l.refuseOptions(base, words, depth, "--pre", "--hostname-bin")
	case "sort":
		l.refuseOptions(base, words, depth, "-o", "--output", "--compress-program")
	case "printf", "test", "[":
		for _, w := range words[1:] {
			if strings.HasPrefix(w.text, "-v") || strings.HasPrefix(w.text, "-R") || strings.HasPrefix(w.text, string(unknownText)) {
				l.refuse(base + " -v can run what is in a name")
			}
			if base == "printf" {
				break // only its first word can be that option
			}
		}
	}
}

// git looks at the options before the subcommand. An option of the configuration can name
// a program to run; deny rules see the subcommand without any of them.
func (l *line) git(words []word, depth int) {
	i := 1
	for i < len(words) && (!words[i].fixed || strings.HasPrefix(words[i].text, "-")) {
		option, _, joined := strings.Cut(words[i].text, "=")
		switch {
		case !words[i].fixed:
			l.refuse("options of git may be in what isn't fixed")
		case option == "--config-env", option == "--exec-path", strings.HasPrefix(option, "-c"):
			l.refuse("git " + option + " can run any program")
		}
		i++
		takesValue := slices.Contains([]string{"-c", "-C", "--config-env", "--exec-path", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"}, option)
		if takesValue && !joined {
			i++
		}
	}
	if i > 1 && i < len(words) {
		l.suspectWords(append([]word{words[0]}, words[i:]...))
	}
	if i < len(words) {
		l.gitSubcommand(words[i:], depth)
	}
}

// gitSubcommand refuses what makes a subcommand run a program or write to any file:
// `git log --output=FILE` only looks as if it read.
func (l *line) gitSubcommand(words []word, depth int) {
	base := "git " + words[0].text
	switch words[0].text {
	case "log", "diff", "show", "whatchanged", "range-diff", "format-patch", "diff-tree", "diff-index", "diff-files", "rev-list", "stash", "reflog":
		l.refuseOptions(base, words, depth, "--output", "--ext-diff")
	case "grep":
		l.refuseOptions(base, words, depth, "-O", "--open-files-in-pager")
	case "archive":
		l.refuseOptions(base, words, depth, "-o", "--output", "--exec")
	case "ls-remote", "fetch", "fetch-pack", "pull":
		l.refuseOptions(base, words, depth, "--upload-pack", "--exec")
	case "clone":
		l.refuseOptions(base, words, depth, "-u", "--upload-pack", "-c", "--config", "--template")
	case "push", "send-pack":
		l.refuseOptions(base, words, depth, "--receive-pack", "--exec")
	case "rebase":
		l.refuseOptions(base, words, depth, "-x", "--exec")
	case "difftool", "mergetool", "filter-branch", "for-each-repo", "instaweb", "send-email":
		l.refuse(base + " runs other programs")
		l.suspectTails(words, depth)
	case "bisect", "submodule":
		for _, w := range words[1:] {
			if w.text == "run" || w.text == "foreach" || !w.fixed {
				l.refuse(base + " can run any program")
				l.suspectTails(words, depth)
				return
			}
		}
	}
}

// refuseOptions refuses a command with one of the options, as a word of its own, joined
// with its value, among other letters, or cut short as programs allow; and one whose words
// may be options because they aren't known. What follows `--` is none.
func (l *line) refuseOptions(base string, words []word, depth int, options ...string) {
	for _, w := range words[1:] {
		given, value, _ := strings.Cut(w.text, "=")
		if given == "--" && w.fixed {
			return
		}
		if strings.HasPrefix(w.text, string(unknownText)) {
			l.refuse("options of " + base + " may be in what isn't fixed")
			return
		}
		for _, o := range options {
			switch long := strings.HasPrefix(o, "--"); {
			case given == o,
				long && len(given) > 2 && strings.HasPrefix(o, given),
				long && strings.HasPrefix(given, "--") && strings.ContainsRune(given, unknownText),
				!long && len(given) > 1 && given[0] == '-' && given[1] != '-' && strings.Contains(w.text[1:], o[1:]):
				l.refuse(base + " " + o + " writes to any file or runs any program")
				l.suspectTails(words, depth)
				l.suspectScript(unmarkBlanks(value), depth)
				return
			}
		}
	}
}

// suspectWords adds the texts under which a deny rule may know a command.
func (l *line) suspectWords(words []word) {
	if len(words) == 0 {
		return
	}
	l.suspect(joinWords(words))
	plain := slices.Clone(words)
	base := baseName(words[0].text)
	plain[0].text = base
	l.suspect(joinWords(plain))
	// RM is rm where the file system has no case.
	plain[0].text = strings.ToLower(base)
	l.suspect(joinWords(plain))
	// What isn't known may be nothing.
	plain = slices.DeleteFunc(plain, func(w word) bool { return strings.Trim(w.text, string(unknownText)) == "" })
	l.suspect(strings.ReplaceAll(joinWords(plain), string(unknownText), ""))
}

// suspectTails adds what a command may run: any words at its end, and scripts in words.
// Which words are options with values isn't known, so all are tried.
func (l *line) suspectTails(words []word, depth int) {
	for i := 1; i < len(words) && i < 64; i++ {
		l.suspectWords(words[i:])
		if words[i].fixed && strings.ContainsAny(words[i].text, string(wordBlank)+"\t\n;|&`$(") {
			l.suspectScript(unmarkBlanks(words[i].text), depth)
		}
	}
	if len(words) > 2 {
		l.suspectScript(unmarkBlanks(joinWords(words[1:])), depth) // eval joins them
	}
}

// suspectScript parses what may be run as a script, for deny rules only.
func (l *line) suspectScript(text string, depth int) {
	if depth >= maxDepth || len(l.suspects) > maxCommands {
		return
	}
	inner := &line{}
	inner.parse(text, depth+1)
	for _, text := range inner.suspects {
		l.suspect(text)
	}
	l.writes = append(l.writes, inner.writes...)
	l.reads = append(l.reads, inner.reads...)
}

func (l *line) suspect(text string) {
	if text = strings.TrimSpace(text); text == "" || slices.Contains(l.suspects[max(0, len(l.suspects)-8):], text) {
		return
	}
	if l.suspectBytes += len(text); l.suspectBytes > maxSuspectBytes {
		l.hide("the line has too much in it to be understood")
		return
	}
	l.suspects = append(l.suspects, text)
	if plain := unmarkBlanks(text); plain != text {
		l.suspects = append(l.suspects, plain)
	}
}

// suspectText tries the pieces of a line that can't be parsed.
func (l *line) suspectText(text string) {
	for piece := range strings.FieldsFuncSeq(text, func(c rune) bool { return strings.ContainsRune(";|&\n(){}`", c) }) {
		var words []word
		for field := range strings.FieldsSeq(piece) {
			words = append(words, word{text: strings.NewReplacer(`"`, "", `'`, "", `\`, "").Replace(field), fixed: true})
		}
		if len(l.suspects) < maxCommands {
			l.suspectWords(words)
		}
	}
}

func baseName(program string) string { return program[strings.LastIndexByte(program, '/')+1:] }
