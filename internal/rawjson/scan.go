package rawjson

// isPlain says for each byte whether it may stand inside a JSON string without
// ending it or needing a closer look.
func isPlain(c byte) bool { return c >= 0x20 && c != '"' && c != '\\' }

// skipSpace returns the index of the first byte at or after i that is no JSON
// white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i, or -1.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	i++
	for i < len(b) {
		c := b[i]
		switch {
		case isPlain(c):
			i++
		case c == '"':
			return i + 1
		case c == '\\':
			if i = skipEscape(b, i+1); i < 0 {
				return -1
			}
		default:
			return -1
		}
	}
	return -1
}

// skipEscape returns the index after the escape whose letter is at i, or -1.
func skipEscape(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if i+4 >= len(b) {
			return -1
		}
		for _, c := range b[i+1 : i+5] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return -1
			}
		}
		return i + 5
	}
	return -1
}

// skipDigits returns the index after one or more digits at i, or -1.
func skipDigits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// skipNumber returns the index after the number that starts at i, or -1.
func skipNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipScalar returns the index after the string, number or literal at i, or -1.
func skipScalar(b []byte, i int) int {
	word := ""
	switch b[i] {
	case '"':
		return skipString(b, i)
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	default:
		return skipNumber(b, i)
	}
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// skipKey returns the index after the member name and colon at i, or -1.
func skipKey(b []byte, i int) int {
	if i = skipString(b, skipSpace(b, i)); i < 0 {
		return -1
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return -1
	}
	return i + 1
}

// skipValue returns the index after the value that starts at i (white space
// first is fine), or -1. It keeps its own stack: a peer that nests a million
// arrays must not end the process.
func skipValue(b []byte, i int) int {
	var room [64]byte
	stack := room[:0]
	for {
		if i = skipSpace(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case '{', '[':
			open := b[i]
			next := skipSpace(b, i+1)
			if next < len(b) && b[next] == open+2 { // '}' and ']' are two after their openers
				i = next + 1
				break
			}
			stack = append(stack, open)
			i++
			if open == '{' {
				if i = skipKey(b, i); i < 0 {
					return -1
				}
			}
			continue
		default:
			if i = skipScalar(b, i); i < 0 {
				return -1
			}
		}
		if i, stack = skipClosers(b, i, stack); i < 0 || len(stack) == 0 {
			return i
		}
	}
}

// skipClosers goes on after a finished value: over closing brackets up to the
// start of the next value, or to the end of the outermost one (empty stack).
func skipClosers(b []byte, i int, stack []byte) (int, []byte) {
	for len(stack) > 0 {
		if i = skipSpace(b, i); i >= len(b) {
			return -1, stack
		}
		top := stack[len(stack)-1]
		switch b[i] {
		case ',':
			if i++; top == '{' {
				i = skipKey(b, i)
			}
			return i, stack
		case top + 2:
			stack = stack[:len(stack)-1]
			i++
		default:
			return -1, stack
		}
	}
	return i, stack
}
