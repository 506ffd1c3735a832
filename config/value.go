package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// setText parses text into field, which is a pointer to one of the types that keys
// have. It returns what is wrong, or nothing; then field is as it was.
func setText(field any, text string) string {
	switch f := field.(type) {
	case *string:
		if strings.ContainsRune(text, 0) {
			return "can't hold a NUL byte"
		}
		*f = text
	case *bool:
		if text != "true" && text != "false" {
			return fmt.Sprintf("must be true or false, not %q", text)
		}
		*f = text == "true"
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Sprintf("must be a whole number, not %q", text)
		}
		*f = n
	case *Size:
		n, problem := parseSize(text)
		if problem != "" {
			return problem
		}
		*f = n
	case *time.Duration:
		d, problem := parseDuration(text)
		if problem != "" {
			return problem
		}
		*f = d
	case **time.Duration:
		d, problem := parseDuration(text)
		if problem != "" {
			return problem
		}
		*f = &d
	case *[]string:
		var list []string
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word != "" {
				list = append(list, word)
			}
		}
		*f = list
	default:
		return "can't be given here"
	}
	return ""
}

// plainNumber is a number as people write it: ParseFloat would take inf and hex too.
func plainNumber(text string) (float64, bool) {
	if !regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`).MatchString(text) {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

func parseDuration(text string) (time.Duration, string) {
	var d time.Duration
	if seconds, ok := plainNumber(text); ok {
		if math.Abs(seconds) > math.MaxInt64/float64(2*time.Second) {
			return 0, "is too long"
		}
		d = time.Duration(seconds * float64(time.Second))
	} else {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			return 0, fmt.Sprintf("must be a time such as 5s, 2m or 1h30m, or a number of seconds, not %q", text)
		}
	}
	if d < 0 {
		return 0, "can't be negative"
	}
	return d, ""
}

func parseSize(text string) (Size, string) {
	number, unit := strings.TrimSpace(text), 1
	for suffix, factor := range map[string]int{"KiB": kib, "MiB": mib, "GiB": gib} {
		if n, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(n), factor
			break
		}
	}
	n, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return 0, fmt.Sprintf("must be a size such as 32MiB, 512KiB, or a number of bytes, not %q", text)
	case n < 0:
		return 0, "can't be negative"
	case n > math.MaxInt/unit:
		return 0, "is too large"
	}
	return Size(n * unit), ""
}

// String is the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		n    Size
		name string
	}{{gib, "GiB"}, {mib, "MiB"}, {kib, "KiB"}} {
		if s >= u.n && s%u.n == 0 {
			return strconv.Itoa(int(s/u.n)) + u.name
		}
	}
	return strconv.Itoa(int(s))
}

// formatDuration drops the zeros that Duration.String has: 10m instead of 10m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
