//go:build unix

package stream

import "encoding/json"

// plans are what a run means to do. ACP has one plan, which each update replaces, so the
// todo list follows the plan in it.
type plans struct{ plan, todo []planEntry }

type planUpdate struct {
	SessionUpdate string      `json:"sessionUpdate"`
	Entries       []planEntry `json:"entries"`
}

type planEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// set takes a plan or todo event and gives the entries of both.
func (p *plans) set(e event) []planEntry {
	entries := planEntries(e)
	if e.kind == "todo" {
		p.todo = entries
	} else {
		p.plan = entries
	}
	return append(append([]planEntry{}, p.plan...), p.todo...) // never nil, which is no array
}

// planEntries reads an event's list, else its text as the only entry. It is never nil:
// an empty list takes the plan away.
func planEntries(e event) []planEntry {
	entries := []planEntry{}
	for _, name := range []string{"entries", "items", "steps", "todos", "plan", "todo"} {
		var items []json.RawMessage
		if raw, ok := e.fields[name]; !ok || json.Unmarshal(raw, &items) != nil {
			continue
		}
		for _, raw := range items {
			if entry := newPlanEntry(raw); entry.Content != "" {
				entries = append(entries, entry)
			}
		}
		return entries
	}
	if text := e.text("content", "text"); text != "" {
		entries = append(entries, planEntry{Content: text, Priority: "medium", Status: "pending"})
	}
	return entries
}

// newPlanEntry reads one entry, a string or an object.
func newPlanEntry(raw json.RawMessage) planEntry {
	entry := planEntry{Priority: "medium", Status: "pending"}
	if json.Unmarshal(raw, &entry.Content) == nil {
		return entry
	}
	item := event{}
	if json.Unmarshal(raw, &item.fields) != nil {
		return entry
	}
	entry.Content = item.text("content", "text", "title", "step", "name")
	switch p := item.text("priority"); p {
	case "high", "low":
		entry.Priority = p
	}
	switch item.text("status", "state") {
	case "completed", "complete", "done":
		entry.Status = "completed"
	case "in_progress", "running", "active":
		entry.Status = "in_progress"
	}
	if done, ok := item.flag("done"); ok && done {
		entry.Status = "completed"
	}
	return entry
}
