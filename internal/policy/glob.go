package policy

import (
	"strings"
	"unicode"
)

// glob is a compiled pattern. Matching takes at most len(pattern) × len(text) steps
// whatever the pattern: a text that a model wrote can't make it slow.
type glob []globToken

type globToken struct {
	op   globOp
	char rune
}

type globOp int

const (
	opChar globOp = iota
	// opOne is one character: ? . opOneName is that in paths, where it isn't a '/'.
	opOne
	opOneName
	// opSome is any run of characters without a '/', in paths: * .
	opSome
	// opAny is any run of characters: ** , and * outside of paths.
	opAny
	// opDirs is nothing, or any run of characters that ends with '/': **/ in paths.
	opDirs
)

// Two characters of Unicode's private range stand for what no text has. A text that has
// them is never allowed, so that nobody can write them.
const (
	// wordBlank is a blank within a word of a command: `rm "a b"` is not `rm a b`.
	wordBlank = '\uE000'
	// unknownText is any text, such as the value of a variable. Only * and ** match it.
	unknownText = '\uE001'
)

// compileGlob compiles a pattern that parseRule has accepted. Paths have * without '/'.
// In patterns for commands `\ ` is a blank within a word.
func compileGlob(pattern string, paths bool) glob {
	var g glob
	chars := []rune(pattern)
	for i := 0; i < len(chars); i++ {
		switch c := chars[i]; {
		case c == '\\' && i+1 < len(chars):
			i++
			if c = chars[i]; c == ' ' && !paths {
				c = wordBlank
			}
			g = append(g, globToken{opChar, c})
		case c == '?':
			one := opOne
			if paths {
				one = opOneName
			}
			g = append(g, globToken{op: one})
		case c != '*':
			g = append(g, globToken{opChar, c})
		default:
			double := i+1 < len(chars) && chars[i+1] == '*'
			for i+1 < len(chars) && chars[i+1] == '*' {
				i++
			}
			atElement := len(g) == 0 || g[len(g)-1] == globToken{opChar, '/'} || g[len(g)-1].op == opDirs
			switch {
			case paths && double && atElement && i+1 < len(chars) && chars[i+1] == '/':
				i++
				g = append(g, globToken{op: opDirs})
			case paths && !double:
				g = append(g, globToken{op: opSome})
			default:
				g = append(g, globToken{op: opAny})
			}
		}
	}
	return g
}

// matches says whether the whole text is what the pattern means. With fold, letters are
// compared without their case.
func (g glob) matches(text string, fold bool) bool {
	// now[i]: the tokens before i have matched the text so far.
	now, next := make([]bool, len(g)+1), make([]bool, len(g)+1)
	now[0] = true
	g.skipStars(now, true)
	for _, c := range text {
		clear(next)
		alive := false
		for i, t := range g {
			if !now[i] {
				continue
			}
			to := -1
			switch t.op {
			case opChar:
				if t.char == c || fold && unicode.SimpleFold(t.char) != t.char && strings.EqualFold(string(t.char), string(c)) {
					to = i + 1
				}
			case opOne, opOneName:
				if c != unknownText && (c != '/' || t.op == opOne) {
					to = i + 1
				}
			case opSome:
				if c != '/' {
					to = i
				}
			case opAny:
				to = i
			case opDirs:
				to = i
				if c == '/' {
					next[i+1], alive = true, true
				}
			}
			if to >= 0 {
				next[to], alive = true, true
			}
		}
		if !alive {
			return false
		}
		g.skipStars(next, c == '/')
		now, next = next, now
	}
	return now[len(g)]
}

// skipStars lets what may match nothing do so. opDirs must not end in the middle of a
// name: atElement says that the text so far is empty or ends with '/'.
func (g glob) skipStars(states []bool, atElement bool) {
	for i, t := range g {
		if !states[i] {
			continue
		}
		switch t.op {
		case opSome, opAny:
			states[i+1] = true
		case opDirs:
			if atElement {
				states[i+1] = true
			}
		case opChar, opOne, opOneName:
		}
	}
}

// quoteGlob is a pattern that matches the text alone. unknownText becomes *.
func quoteGlob(text string, command bool) string {
	var b strings.Builder
	for _, c := range text {
		switch {
		case c == unknownText:
			b.WriteByte('*')
			continue
		case c == wordBlank && command:
			b.WriteString(`\ `)
			continue
		case c == '*' || c == '?' || c == '\\':
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// strange says whether a text has characters that a person who is asked can't see, or
// that don't mean the same to everybody: control characters (but those in but), marks
// that turn the direction of writing, private ones, and what is no UTF-8.
func strange(text, but string) bool {
	for _, c := range text {
		switch {
		case strings.ContainsRune(but, c):
		case c == unicode.ReplacementChar, unicode.IsControl(c), unicode.In(c, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp):
			return true
		}
	}
	return false
}
