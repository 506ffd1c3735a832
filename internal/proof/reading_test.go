package proof

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"raiderfleet/internal/bus"
	"raiderfleet/internal/shim"
	"raiderfleet/subjects"
)

// readRecords reads all run records.
func (f *fleet) readRecords(t *testing.T) {
	t.Helper()
	until(t, 30*time.Second, "read run records", func(ctx context.Context) error {
		all, err := f.bus.List(ctx, f.bus.Fleet().RunsBucket(), "*")
		if err != nil {
			return err
		}
		for _, rec := range all {
			var run subjects.RunRecord
			if err := json.Unmarshal(rec.Value, &run); err != nil {
				return err
			}
			f.h.records[subjects.PromptID(rec.Key)] = run
		}
		return nil
	})
}

// readEvents reads all outcome events.
func (f *fleet) readEvents(t *testing.T) {
	t.Helper()
	fleet := f.bus.Fleet()
	for from := uint64(1); ; {
		var m bus.Message
		var end bool
		until(t, 20*time.Second, "read events", func(ctx context.Context) error {
			var err error
			m, err = f.bus.Next(ctx, fleet.EventsStream(), fleet.EventAll(), from)
			if errors.Is(err, bus.ErrNotFound) {
				end = true
				return nil
			}
			return err
		})
		if end {
			return
		}
		from = m.Seq + 1
		h, err := subjects.ParseEventHeader(m.Header)
		if err != nil {
			t.Errorf("event %d: %v", m.Seq, err)
			continue
		}
		if h.Kind == subjects.EventOutcome {
			var o subjects.Outcome
			if err := json.Unmarshal(m.Data, &o); err != nil {
				t.Errorf("event %d: %v", m.Seq, err)
				continue
			}
			f.h.told[h.Prompt] = append(f.h.told[h.Prompt], o.State)
		}
	}
}

// readJournal reads what the raider processes say that they did.
func (f *fleet) readJournal(t *testing.T) {
	t.Helper()
	file, err := os.Open(f.journal)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for in := bufio.NewScanner(file); in.Scan(); {
		w := strings.Fields(in.Text())
		if len(w) != 5 {
			t.Errorf("journal: %q", in.Text())
			continue
		}
		at, err1 := strconv.ParseInt(w[1], 10, 64)
		pid, err2 := strconv.Atoi(w[2])
		if err := errors.Join(err1, err2); err != nil {
			t.Errorf("journal: %v", err)
		}
		f.h.journal = append(f.h.journal, entry{kind: w[0], at: shim.Boottime(at), pid: pid, lane: w[3], tag: w[4]})
	}
}

// readLogs looks for what no process may say.
func (f *fleet) readLogs(t *testing.T) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(f.dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
			if at := bytes.Index(text, []byte(bad)); at >= 0 {
				t.Errorf("%s: %s", filepath.Base(name), text[at:min(len(text), at+3000)])
			}
		}
	}
}

// keepWires writes what each connection saw beside the logs, which are kept if asked for.
func (f *fleet) keepWires(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	for i, w := range f.h.wires {
		for _, s := range w {
			fmt.Fprintf(&out, "%d %d %s %s %s %d %d %v %v %v\n", i, s.at, s.kind, s.session, s.tag, s.pid, s.n, s.last, s.incomplete, s.whole)
		}
	}
	if err := os.WriteFile(filepath.Join(f.dir, "wires"), out.Bytes(), 0o600); err != nil {
		t.Error(err)
	}
}
