//go:build unix

package stream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLines(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"none", "", nil},
		{"blank ones", "\n\na\n", []string{"", "", "a"}},
		{"no line feed at the end", "a\nb", []string{"a", "b"}},
		{"larger than the buffer", strings.Repeat("x", 150_000) + "\ny\n", []string{strings.Repeat("x", 150_000), "y"}},
		{"exactly the limit", strings.Repeat("x", limit) + "\ny", []string{strings.Repeat("x", limit), "y"}},
		{"too long", strings.Repeat("x", limit+1) + "\ny", []string{"!" + strings.Repeat("x", keptLineBytes), "y"}},
		{"too long at the end", strings.Repeat("x", 10*limit), []string{"!" + strings.Repeat("x", keptLineBytes)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			in := newLineReader(strings.NewReader(tc.in), limit)
			for i := 0; ; i++ {
				line, whole, err := in.next()
				if err != nil {
					if i != len(tc.want) || !errors.Is(err, io.EOF) {
						t.Fatalf("%d lines, %v", i, err)
					}
					return
				}
				got := string(line)
				if !whole {
					got = "!" + got
				}
				if i >= len(tc.want) || got != tc.want[i] {
					t.Fatalf("line %d: %d bytes", i, len(got))
				}
			}
		})
	}
}

// A reader that gives single bytes cuts every character in two.
func TestSplitCharacters(t *testing.T) {
	t.Parallel()
	const text = "日本語😀"
	in := newLineReader(iotest.OneByteReader(strings.NewReader(`{"version":1,"type":"message","content":"`+text+`"}`)), maxLineBytes)
	line, whole, err := in.next()
	if err != nil || !whole {
		t.Fatal(err)
	}
	if e, err := parseEvent(line); err != nil || e.text("content") != text {
		t.Fatalf("got %q, %v", e.text("content"), err)
	}
}

// FuzzEvents: whatever a command writes, its updates are valid and nothing breaks.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"type":"message","content":"x"}`, `{"version":1,"type":"run.finished","status":"completed","response":"x"}`,
		`{"version":1,"type":"tool.call","call":"c1","name":"bash","arguments":{"command":"ls"}}` + "\n" + `{"version":1,"type":"tool.output","text":"x"}`,
		`{"version":1,"type":"tool.result","call":3,"ok":false}`, `{"version":1,"type":"plan","entries":["x",{"text":"y","done":true}]}`,
		`{"version":1,"type":"todo","todo":null}`, "banner\n{}\n\xff\xfe", `{"version":1e0,"type":"goal","session":{"id":7}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var lines bytes.Buffer
		in := newLineReader(bytes.NewReader(input), 300)
		for {
			line, whole, err := in.next()
			if err != nil {
				break
			}
			if len(line) > 300 && whole || bytes.IndexByte(line, '\n') >= 0 {
				t.Fatalf("line of %d bytes", len(line))
			}
			if whole {
				lines.Write(append(line, '\n'))
			}
		}
		translate(t, lines.String())
	})
}
