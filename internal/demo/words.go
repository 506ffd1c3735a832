package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxStreamBytes keeps one update of `stream` within a usual line limit.
const maxStreamBytes = 31 << 20

// sleep says a chunk a second and one at the end; a cancel ends it at once.
func (t *turn) sleep(ctx context.Context, arg string) error {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(arg), 64)
	if err != nil || seconds < 0 || seconds > 1e6 {
		return &failError{"sleep needs a number of seconds"}
	}
	total := time.Duration(seconds * float64(time.Second))
	for slept := time.Duration(0); slept < total; {
		step := min(time.Second, total-slept)
		timer := time.NewTimer(step)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
		if slept += step; slept < total {
			if err := t.say(slept.String() + "\n"); err != nil {
				return err
			}
		}
	}
	return t.say("slept " + total.String())
}

// ask wants a permission and says what came of it.
func (t *turn) ask(ctx context.Context, title string) error {
	if title = strings.TrimSpace(title); title == "" {
		title = "Run a demo command"
	}
	came, err := t.voice.ask(ctx, "ask-"+rand.Text(), title)
	switch {
	case ctx.Err() != nil:
		return errors.Join(t.say("cancelled"), context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("asking: %w", err)
	}
	return t.say(came)
}

// tool shows a tool call from pending to completed.
func (t *turn) tool(ctx context.Context) error {
	id := "tool-" + rand.Text()
	for step := range toolSteps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := t.voice.tool(id, step); err != nil {
			return err
		}
	}
	return t.say("counted to three")
}

func (t *turn) think() error {
	if err := t.voice.think("The demo thinks."); err != nil {
		return err
	}
	return t.say("thought about it")
}

// plan shows a plan whose entries are completed one after another.
func (t *turn) plan(ctx context.Context) error {
	steps := []string{"Look", "Think", "Act"}
	for done := range len(steps) + 1 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		entries := make([]map[string]string, len(steps))
		for i, step := range steps {
			status := "pending"
			if i < done {
				status = "completed"
			} else if i == done {
				status = "in_progress"
			}
			entries[i] = map[string]string{"content": step, "priority": "medium", "status": status}
		}
		if err := t.voice.plan(entries); err != nil {
			return err
		}
	}
	return t.say("planned")
}

// stream says n pieces of the given number of bytes as fast as they are read.
func (t *turn) stream(ctx context.Context, args string) error {
	var n, size int
	if _, err := fmt.Sscan(args, &n, &size); err != nil || n < 0 || size < 0 || size > maxStreamBytes {
		return &failError{"stream needs a number of updates and of bytes in each"}
	}
	again, err := t.voice.repeated(strings.Repeat("x", size))
	if err != nil {
		return err
	}
	for range n {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := again(); err != nil {
			return err
		}
	}
	return nil
}

// noise puts lines that are no protocol between its updates.
func (t *turn) noise() error {
	for _, line := range []string{
		"*** demo raider, at your service ***\n",
		"2006-01-02T15:04:05Z INFO a log line\n",
		`{"level":"info","msg":"a log line in JSON","id":1,"method":"session/update"}` + "\n",
		"\n[1,2,3]\n\"text\"\n",
		`{"jsonrpc":"1.0","method":"session/update","params":{}}` + "\n",
	} {
		if err := t.voice.noise(line); err != nil {
			return err
		}
		if err := t.say("quiet "); err != nil {
			return err
		}
	}
	return t.say("again")
}

// call asks the client for something and says what it answers.
func (t *turn) call(ctx context.Context, arg string) error {
	method, params := methodAndParams(arg)
	came, err := t.voice.call(ctx, method, params)
	switch {
	case ctx.Err() != nil:
		return errors.Join(t.say("cancelled"), context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("asking the client: %w", err)
	}
	return t.say(came)
}

// methodAndParams takes 'METHOD [JSON]' apart.
func methodAndParams(arg string) (method string, params json.RawMessage) {
	method, text, _ := strings.Cut(strings.TrimSpace(arg), " ")
	if text = strings.TrimSpace(text); text == "" {
		text = "{}"
	}
	return method, json.RawMessage(text)
}
