package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is a word of a command, without its quotes: `g”it` and "git" are git.
type word struct {
	// text has wordBlank for blanks in it and unknownText for what isn't known.
	text string
	// fixed: the word is always this one.
	fixed bool
}

func renderWords(words []*syntax.Word) []word {
	out := make([]word, len(words))
	for i, w := range words {
		out[i] = renderWord(w)
	}
	return out
}

func renderWord(w *syntax.Word) word {
	r := wordRenderer{fixed: true}
	for i, part := range w.Parts {
		r.part(part, i == 0)
	}
	return word{text: markBlanks(r.b.String()), fixed: r.fixed}
}

type wordRenderer struct {
	b     strings.Builder
	fixed bool
	// ended: the rest of the word is part of what isn't known.
	ended bool
}

func (r *wordRenderer) write(s string) {
	if !r.ended {
		r.b.WriteString(s)
	}
}

func (r *wordRenderer) unknown() {
	r.write(string(unknownText))
	r.fixed = false
}

func (r *wordRenderer) part(p syntax.WordPart, first bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		r.literal(p.Value, first)
	case *syntax.SglQuoted:
		switch {
		case !p.Dollar:
			r.write(p.Value)
		case strings.Contains(p.Value, `\`):
			// $'\x72m': some shells decode it, others don't.
			r.unknown()
		default:
			r.write(p.Value)
		}
	case *syntax.DblQuoted:
		if p.Dollar {
			r.unknown() // translated by the locale
			return
		}
		for _, inner := range p.Parts {
			if lit, ok := inner.(*syntax.Lit); ok {
				r.quoted(lit.Value)
			} else {
				r.part(inner, false)
			}
		}
	case *syntax.ExtGlob, *syntax.BraceExp:
		r.unknown()
		r.ended = true
	default: // parameters, substitutions, arithmetic
		r.unknown()
	}
}

// literal is text outside of quotes.
func (r *wordRenderer) literal(s string, first bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				r.write(s[i : i+1])
			}
		case '*', '?':
			r.unknown() // file names
		case '[', '{':
			// What it becomes has several parts, or several words.
			r.unknown()
			r.ended = true
		case '=':
			if i == 0 && first {
				r.unknown() // =ls is a path in zsh
			} else {
				r.write("=")
			}
		default:
			r.write(s[i : i+1])
		}
	}
}

// quoted is text in double quotes.
func (r *wordRenderer) quoted(s string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			if i++; s[i] == '\n' {
				continue
			}
		}
		r.write(s[i : i+1])
	}
}

func markBlanks(s string) string { return strings.ReplaceAll(s, " ", string(wordBlank)) }

func unmarkBlanks(s string) string { return strings.ReplaceAll(s, string(wordBlank), " ") }

func joinWords(words []word) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	return strings.Join(texts, " ")
}
