package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Describe writes what the configuration means: every key with its value and where
// that came from. Passwords in URLs and the values of env are left out. What w
// answers is not looked at.
func Describe(w io.Writer, c *Config) {
	file := c.File
	if file == "" {
		file = "none, built-in defaults"
	}
	_, _ = fmt.Fprintf(w, "file: %s\n", file)
	if warning := c.Warning(); warning != "" {
		_, _ = fmt.Fprintf(w, "warning: %s\n", warning)
	}
	_, _ = fmt.Fprintln(w)
	// The value last: some are long, and would push what follows out of sight.
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range keys() {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", k.path, c.origins[k.path], k.meaning(show(k.path, k.field(c))))
	}
	for i := range c.Raiders {
		r := &c.Raiders[i]
		label, note := "raiders."+r.Name, ""
		if i == 0 {
			note = "the default raider"
		}
		_, _ = fmt.Fprintf(t, "\n%s\t%s\t%s\n", label, c.origins[label], note)
		for _, k := range raiderKeys() {
			if k.path == "name" {
				continue
			}
			value := k.meaning(show(k.path, k.field(r)))
			if k.path == "idle_ttl" && r.IdleTTL == nil {
				value = formatDuration(c.IdleTTL)
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", label+"."+k.path, c.origins[label+"."+k.path], value)
		}
	}
	_ = t.Flush()
}

// meaning puts what an empty value stands for in its place: "all", "the session's".
func (k key[T]) meaning(value string) string {
	if value == nothing && k.shown != "" && !strings.HasPrefix(k.shown, "none") {
		return "(" + k.shown + ")"
	}
	return value
}

// nothing stands for an empty value.
const nothing = "-"

// show is a value as a line of text.
func show(path string, field any) string {
	switch f := field.(type) {
	case *string:
		return word(*f)
	case *bool:
		return strconv.FormatBool(*f)
	case *int:
		return strconv.Itoa(*f)
	case *Size:
		return f.String()
	case *time.Duration:
		return formatDuration(*f)
	case **time.Duration:
		if *f != nil {
			return formatDuration(**f)
		}
	case *[]string:
		words := make([]string, len(*f))
		for i, s := range *f {
			if path == "nats.urls" {
				s = redactURL(s)
			}
			words[i] = word(s)
		}
		if len(words) > 0 {
			return "[" + strings.Join(words, ", ") + "]"
		}
	case *map[string]string:
		if len(*f) > 0 {
			return strings.Join(slices.Sorted(maps.Keys(*f)), ", ") + " (values not shown)"
		}
	}
	return nothing
}

// word quotes what would not be plain in a table.
func word(s string) string {
	if s == "" {
		return nothing
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == ',' || !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
