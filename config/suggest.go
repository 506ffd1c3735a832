package config

import (
	"slices"
	"strings"
)

// suggest returns "; did you mean X?" for the known word that is nearest to word, or
// nothing when none is near.
func suggest(word string, known []string) string {
	best, bestAt := "", len(word)/3+2
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), k); d < bestAt {
			best, bestAt = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// suggestKey is suggest for a key in a section; one that is right but in the wrong
// section is found too.
func suggestKey(word string, siblings, paths []string) string {
	if s := suggest(word, siblings); s != "" {
		return s
	}
	for _, p := range paths {
		if p == word || strings.HasSuffix(p, "."+word) {
			return "; did you mean " + p + "?"
		}
	}
	return ""
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbours
// that make b of a. Both are cut at 64 bytes, no key is as long.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// quoteAll is the words, each quoted, joined with commas.
func quoteAll(words []string) string {
	quoted := slices.Clone(words)
	for i, w := range quoted {
		quoted[i] = `"` + w + `"`
	}
	return strings.Join(quoted, ", ")
}
