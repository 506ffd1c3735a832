package admin

import (
	"strings"
	"unicode"
)

// longestCell bounds a cell of a table, in characters.
const longestCell = 60

// cell is a text from elsewhere as a cell of a table: one line, without what could change
// the terminal, cut.
func cell(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)), " ")
	if r := []rune(s); len(r) > longestCell {
		return string(r[:longestCell]) + "…"
	}
	return s
}
