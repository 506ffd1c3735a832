//go:build unix

package shim

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"testing"
)

func TestOrderRoundTrip(t *testing.T) {
	t.Parallel()
	for _, o := range []order{
		{deadline: 1, path: "/bin/a", args: []string{"a"}},
		{deadline: 1 << 62, path: "a", dir: "/d", args: []string{"a", "", "b c", "\xff\n"}, env: []string{"A=", "B=1"}},
	} {
		b, err := o.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeOrder(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.env) == 0 {
			got.env = nil
		}
		if !reflect.DeepEqual(got, o) {
			t.Errorf("%+v, want %+v", got, o)
		}
	}
}

func FuzzDecode(f *testing.F) {
	b, err := order{deadline: 1, path: "p", dir: "d", args: []string{"x"}, env: []string{"E=1"}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(newFrame(cmdStart, b...))
	f.Add([]byte("s\xff\xff\xff\xff"))
	f.Add(newFrame(cmdStart, append([]byte{protocol}, make([]byte, 12)...)...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if _, payload, err := readFrame(bytes.NewReader(b)); err == nil {
			_, _ = decodeOrder(payload)
		}
	})
}

// The gate alone, with no alarm beside it that would kill the tree.
func TestFeedStopsAtTheDeadline(t *testing.T) {
	t.Parallel()
	for past, want := range map[bool]string{false: "work", true: ""} {
		in, worker, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		raider, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		tr := &tree{dying: make(chan struct{}), stdin: in, raiderStdin: out, reports: io.Discard}
		tr.deadline.Store(int64(Now() + 1e12))
		if past {
			tr.deadline.Store(int64(Now()))
		}
		if _, err := worker.WriteString("work"); err != nil {
			t.Fatal(err)
		}
		_ = worker.Close()
		tr.feed()
		got, err := io.ReadAll(raider)
		if err != nil || string(got) != want || tr.killed() != past {
			t.Errorf("past %v: the raider got %q, %v; killed %v", past, got, err, tr.killed())
		}
		_ = raider.Close()
	}
}
