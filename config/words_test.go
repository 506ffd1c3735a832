package config

import (
	"strings"
	"testing"
	"time"
)

func TestNameFromHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"box": "box", "Box.Example.ORG": "box-example-org", "_-x": "x", "": "worker", "...": "worker", "münchen": "m-nchen",
		strings.Repeat("a", 90): strings.Repeat("a", 64),
	} {
		if got := nameFromHost(host); got != want || checkName(got) != "" {
			t.Errorf("nameFromHost(%q) = %q, want %q", host, got, want)
		}
	}
}

// What Describe prints can be put into a file again and means the same.
func TestSizesAndTimesRoundTrip(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"33554432": "32MiB", "1 GiB": "1GiB", "1536": "1536", "2048KiB": "2MiB", "0": "0"} {
		n, problem := parseSize(text)
		if again, _ := parseSize(n.String()); problem != "" || n.String() != want || again != n {
			t.Errorf("%q: %s %s, want %s", text, n, problem, want)
		}
	}
	for text, want := range map[string]string{"90": "1m30s", "600": "10m", "1h": "1h", "0": "0s", "1.5": "1.5s", "3660": "1h1m", "20m0s": "20m"} {
		d, problem := parseDuration(text)
		if again, _ := parseDuration(formatDuration(d)); problem != "" || formatDuration(d) != want || again != d {
			t.Errorf("%q: %s %s, want %s", text, formatDuration(d), problem, want)
		}
	}
	for _, text := range []string{"", "-1", "1e3", "5 s", "9999999999999", "nan", "0x10", "1_000"} {
		if d, problem := parseDuration(text); problem == "" {
			t.Errorf("%q is a time: %s", text, d)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "5MB", "99999999999GiB", "MiB"} {
		if n, problem := parseSize(text); problem == "" {
			t.Errorf("%q is a size: %d", text, n)
		}
	}
	if d, problem := parseDuration("2562047h47m16s"); problem != "" || d < 250_000*time.Hour {
		t.Errorf("a long time: %s %s", d, problem)
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"nats://a:1": "nats://a:1", "a:1": "a:1", "nats://u:p@a:1": "nats://***@a:1", "u:p@a": "nats://***@a",
		"tls://u:p@p@a": "tls://***@a", "u:p://p@a": "nats://***@a",
	} {
		if got := redactURL(url); got != want {
			t.Errorf("redactURL(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	t.Parallel()
	known := []string{"capacity", "name", "raiders"}
	for word, want := range map[string]string{"capactiy": "capacity", "Name": "name", "raider": "raiders", "zebra-stripes": "", "": ""} {
		got := strings.TrimSuffix(strings.TrimPrefix(suggest(word, known), "; did you mean "), "?")
		if got != want {
			t.Errorf("suggest(%q) = %q, want %q", word, got, want)
		}
	}
}
