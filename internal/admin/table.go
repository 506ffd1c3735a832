package admin

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"raiderfleet/subjects"
)

// table writes rows under a head, or only says that there are none.
func table(w io.Writer, none string, head []string, rows [][]string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		if _, err := fmt.Fprintln(t, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// WriteLanes writes what ps shows.
func WriteLanes(w io.Writer, lanes []subjects.LaneStatus, now time.Time) error {
	rows := make([][]string, 0, len(lanes))
	for _, l := range lanes {
		name := string(l.Raider)
		if slot, ok := l.Lane.Slot(); ok {
			name = slot
		}
		state := l.State
		if !l.Since.IsZero() {
			state += " since " + age(now, l.Since)
		}
		pid := "-"
		if l.PID != 0 {
			pid = fmt.Sprint(l.PID)
		}
		rows = append(rows, []string{orDash(string(l.Session)), name, string(l.Instance), pid, state, age(now, l.LastEvent)})
	}
	return table(w, "nothing runs", []string{"SESSION", "RAIDER", "WORKER", "PID", "STATE", "LAST EVENT"}, rows)
}

// WriteQueue writes what queue shows.
func WriteQueue(w io.Writer, queue []Waiting, now time.Time) error {
	rows := make([][]string, 0, len(queue))
	for _, q := range queue {
		why := q.Why
		if q.Worker != "" {
			why += ", " + string(q.Worker)
		}
		rows = append(rows, []string{
			string(q.Raider), string(q.Lane), fmt.Sprint(q.Place), age(now, q.Since), why, string(q.Session), string(q.Prompt),
		})
	}
	return table(w, "nothing waits", []string{"RAIDER", "LANE", "PLACE", "AGE", "WHY", "SESSION", "PROMPT"}, rows)
}

// WriteWorkers writes what workers shows.
func WriteWorkers(w io.Writer, workers []Worker, now time.Time) error {
	rows := make([][]string, 0, len(workers))
	for _, n := range workers {
		raiders := make([]string, len(n.Raiders))
		for i, r := range n.Raiders {
			raiders[i] = string(r)
		}
		state := string(n.State)
		if n.Silent {
			state += ", silent for " + age(now, n.Seen)
		}
		rows = append(rows, []string{
			string(n.Instance), n.Host, fmt.Sprint(n.PID), state,
			fmt.Sprintf("%d/%d", n.Running, n.Capacity), fmt.Sprintf("%d/%d", n.Warm, n.MaxWarm),
			age(now, n.Started), strings.Join(raiders, ","),
		})
	}
	return table(w, "no worker is there", []string{"WORKER", "HOST", "PID", "STATE", "RUNNING", "PROCESSES", "UP", "RAIDERS"}, rows)
}

// WriteCancelled writes what cancel did.
func WriteCancelled(w io.Writer, all []Cancelled) error {
	for _, c := range all {
		if _, err := fmt.Fprintf(w, "%s %s\n", c.Prompt, c.State); err != nil {
			return err
		}
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// age is how long ago t was, in seconds; below that in milliseconds.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(now.Sub(t), 0)
	if d < time.Second {
		return d.Truncate(time.Millisecond).String()
	}
	return d.Truncate(time.Second).String()
}
