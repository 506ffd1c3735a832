package demo

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
)

// failError is a failure that the prompt asked for: its text goes out as it is.
type failError struct{ text string }

func (e *failError) Error() string { return e.text }

// turn is one run of a prompt.
type turn struct {
	voice   voice
	store   *store
	journal journal
	session string
	cwd     string
	text    string
	can     string        // what the client was said to be able to do, as JSON
	chosen  func() string // what the client has chosen; nil: there is nothing to choose

	earlier []string        // the session's earlier prompts, read when asked for
	answer  strings.Builder // what was said, for a later load
}

// run stores the prompt, does what it says, and stores the answer.
func (t *turn) run(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	word, rest, _ := strings.Cut(strings.TrimLeft(t.text, " \t\r\n"), " ")
	word = strings.TrimSpace(word)
	if word == "history" {
		entries, err := t.store.load(t.session)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Prompt != nil {
				t.earlier = append(t.earlier, *e.Prompt)
			}
		}
	}
	if err := t.store.add(t.session, entry{Prompt: &t.text}); err != nil {
		return err
	}
	if err := t.journal.note("start", t.session, t.text); err != nil {
		return err
	}
	err := t.do(ctx, word, rest)
	err = errors.Join(err, t.journal.note("end", t.session, t.text))
	if t.answer.Len() > 0 {
		said := t.answer.String()
		err = errors.Join(err, t.store.add(t.session, entry{Answer: &said}))
	}
	return err
}

// do does what the first word says.
func (t *turn) do(ctx context.Context, word, rest string) error {
	switch word {
	case "echo":
		return t.say(rest)
	case "sleep":
		return t.sleep(ctx, rest)
	case "ask":
		return t.ask(ctx, rest)
	case "fail":
		return &failError{rest}
	case "tool":
		return t.tool(ctx)
	case "think":
		return t.think()
	case "plan":
		return t.plan(ctx)
	case "stream":
		return t.stream(ctx, rest)
	case "history":
		return t.say(strings.Join(t.earlier, "\n"))
	case "settings":
		if t.chosen == nil {
			return t.say("nothing can be chosen")
		}
		return t.say(t.chosen())
	case "cwd":
		return t.say(t.cwd)
	case "env":
		return t.say(os.Getenv(strings.TrimSpace(rest)))
	case "pid":
		return t.say(strconv.Itoa(os.Getpid()))
	case "exit":
		code, err := strconv.Atoi(strings.TrimSpace(rest))
		if err != nil {
			return &failError{"exit needs a number"}
		}
		os.Exit(code) //nolint:forbidigo // as an agent that crashes: nothing is said or tidied up
	case "hang":
		select {} // for ever, whatever is cancelled; ends with the process
	case "fork":
		pid, err := fork(ctx)
		if err != nil {
			return err
		}
		return t.say(pid)
	case "noise":
		return t.noise()
	case "call":
		return t.call(ctx, rest)
	case "notify":
		method, params := methodAndParams(rest)
		return t.voice.notify(method, params)
	case "can":
		return t.say(t.can)
	case "update":
		if !json.Valid([]byte(rest)) {
			return &failError{"update needs JSON"}
		}
		return t.voice.raw(json.RawMessage(rest))
	}
	return t.say(help)
}

const help = `The demo raider knows these first words:
echo TEXT, sleep SECONDS, ask [TITLE], fail TEXT, tool, think, plan,
stream N BYTES, history, cwd, env NAME, pid, exit CODE, hang, fork, noise,
update JSON, call METHOD [JSON], notify METHOD [JSON], can, settings`

// say says text as one piece of the answer.
func (t *turn) say(text string) error {
	if t.answer.Len()+len(text) <= maxAnswerBytes {
		t.answer.WriteString(text)
	}
	return t.voice.say(text)
}
