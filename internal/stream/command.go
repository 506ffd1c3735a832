//go:build unix

package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxArgumentBytes is the longest argument that is tried. Linux takes 128 KiB with the
// NUL at the end and refuses the whole command otherwise; others take more or less, and
// then the start itself fails.
const maxArgumentBytes = 128<<10 - 1

// hallRaider is the program of a raider without a command.
const hallRaider = "raider"

// call is what one run of a command is about.
type call struct {
	prompt  string
	session string // the inner id; empty in the first run of a session
	cwd     string
}

// placeholders are the names that stand for something in a command's arguments.
func placeholders() []string {
	return []string{"{prompt}", "{session}", "{cwd}", "{engine}", "{model}", "{pack}"}
}

// argv is the command line of a run. bin replaces the hall's own raider, empty leaves it.
// The error says what can't be handed to any command.
func (c Config) argv(bin string, r call) ([]string, error) {
	for _, text := range []string{r.prompt, r.session, r.cwd} {
		if strings.ContainsRune(text, 0) {
			return nil, errors.New("the prompt holds a NUL byte, which can't be handed to a command")
		}
	}
	argv := c.hallArgv(bin, r)
	if len(c.Command) > 0 {
		argv = []string{c.Command[0]}
		for _, arg := range c.Command[1:] {
			argv = append(argv, c.expand(arg, r)...)
		}
	}
	for _, arg := range argv {
		if len(arg) > maxArgumentBytes {
			return nil, fmt.Errorf("the prompt has %d bytes, more than an argument of a command can (%d)", len(r.prompt), maxArgumentBytes)
		}
	}
	return argv, nil
}

// hallArgv is the command line of the hall's own raider.
func (c Config) hallArgv(bin string, r call) []string {
	if bin == "" {
		bin = hallRaider
	}
	argv := []string{bin, "--stream-json"}
	option := func(name, value string) {
		if value != "" {
			argv = append(argv, name, value)
		}
	}
	option("--engine", c.Engine)
	option("--model", c.Model)
	for _, pack := range c.packs() {
		option("--pack", pack)
	}
	option("--session", r.session)
	option("--root", r.cwd)
	return append(argv, "--", r.prompt)
}

// expand gives the arguments that one of the command becomes. All placeholders are
// replaced in one pass, so that what a prompt holds is never looked at again.
func (c Config) expand(arg string, r call) []string {
	packs := c.packs()
	if len(packs) == 0 || !strings.Contains(arg, "{pack}") {
		packs = []string{""}
	}
	var out []string
	for _, pack := range packs {
		values := []string{r.prompt, r.session, r.cwd, c.Engine, c.Model, pack}
		if leftOut(arg, values) {
			continue
		}
		var pairs []string
		for i, name := range placeholders() {
			pairs = append(pairs, name, values[i])
		}
		out = append(out, strings.NewReplacer(pairs...).Replace(arg))
	}
	return out
}

// leftOut says whether an argument is an option (-o={x}) for something that is not set.
// Any other argument stays, empty if need be: were it left out, the next one would take
// its place, and that may be the prompt.
func leftOut(arg string, values []string) bool {
	if !strings.HasPrefix(arg, "-") {
		return false
	}
	i := slices.IndexFunc(placeholders(), func(p string) bool { return strings.HasSuffix(arg, "="+p) })
	return i > 0 && values[i] == "" // 0 is the prompt, which is always set
}
