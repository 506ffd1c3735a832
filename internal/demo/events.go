package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// envSocket is where a stream raider asks for permissions.
const envSocket = "RAIDERFLEET_PERMISSION_SOCKET"

// eventVoice speaks in the lines of a stream raider; see docs/stream-raiders.md.
type eventVoice struct {
	mu   sync.Mutex // guards the rest, and keeps lines whole
	w    io.Writer
	seq  int
	last string // that was said
	over bool   // run.finished is written
}

// event writes one event. Nothing is written after run.finished.
func (v *eventVoice) event(kind string, fields map[string]any) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return nil
	}
	v.over = kind == "run.finished"
	v.seq++
	e := map[string]any{"version": 1, "type": kind, "seq": v.seq, "time": float64(time.Now().UnixMilli()) / 1000}
	maps.Copy(e, fields)
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	if _, err := v.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	return nil
}

func (v *eventVoice) say(text string) error {
	v.mu.Lock()
	v.last = text
	v.mu.Unlock()
	return v.event("message", map[string]any{"role": "assistant", "content": text})
}

func (v *eventVoice) repeated(text string) (func() error, error) {
	return func() error { return v.event("message", map[string]any{"role": "assistant", "content": text}) }, nil
}

func (v *eventVoice) think(text string) error {
	return v.event("thinking", map[string]any{"content": text})
}

func (v *eventVoice) plan(entries []map[string]string) error {
	return v.event("plan", map[string]any{"entries": entries})
}

func (v *eventVoice) tool(id string, step int) error {
	switch step {
	case 0:
		return v.event("tool.call", map[string]any{
			"call": id, "name": "count", "title": "Count to three", "kind": "execute",
			"arguments": map[string]int{"to": 3}, "status": "pending",
		})
	case 1:
		return v.event("tool.output", map[string]any{"call": id, "stream": "stdout", "content": "1 2 3"})
	}
	return v.event("tool.result", map[string]any{
		"call": id, "name": "count", "status": "succeeded", "ok": true, "size": 5, "content": "1 2 3", "truncated": false,
	})
}

func (v *eventVoice) call(context.Context, string, json.RawMessage) (string, error) {
	return "", &failError{"a stream raider can ask its client for nothing but permissions"}
}

func (v *eventVoice) notify(string, json.RawMessage) error {
	return &failError{"a stream raider can send its client nothing but events"}
}

func (v *eventVoice) noise(lines string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := io.WriteString(v.w, lines); err != nil {
		return fmt.Errorf("writing noise: %w", err)
	}
	return nil
}

// raw has no event to stand for: what it carries is said, as any text would be.
func (v *eventVoice) raw(update json.RawMessage) error { return v.say(string(update)) }

// ask asks on the permission socket. No socket, or no answer, is a refusal.
func (v *eventVoice) ask(ctx context.Context, id, title string) (string, error) {
	path := os.Getenv(envSocket)
	if path == "" {
		return noAnswer + "there is nobody to ask", nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return noAnswer + "there is nobody to ask", nil
	}
	defer func() { _ = c.Close() }() // asked and answered
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	question, err := json.Marshal(map[string]any{
		"id": id, "call": id, "tool": "demo", "title": title, "kind": "execute",
		"input": map[string]string{"command": "true"}, "reason": "The demo was told to ask.", "rule": "execute(true)",
	})
	if err != nil {
		return "", fmt.Errorf("encoding a question: %w", err)
	}
	if _, err := c.Write(append(question, '\n')); err != nil {
		return noAnswer + "nobody listens", nil
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return noAnswer + "nobody answers", nil
	}
	return readDecision(line, id)
}

func readDecision(line []byte, id string) (string, error) {
	var d struct {
		ID       string `json:"id"`
		Decision string `json:"decision"`
		Reason   string `json:"reason"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &d); err != nil || d.ID != id {
		return "", errors.Join(errors.New("the answer is to another question"), err)
	}
	switch {
	case d.Decision == "allow_once":
		return allowedOnce, nil
	case d.Decision == "allow_always":
		return allowedAlways, nil
	case d.Reason == cancelled:
		return cancelled, nil
	}
	if why, ok := strings.CutPrefix(d.Reason, "nobody could be asked: "); ok {
		return noAnswer + why, nil
	}
	return rejected, nil
}
