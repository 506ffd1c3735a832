//go:build unix

package stream

import (
	"encoding/json"
	"strconv"
)

// translator makes session updates of a run's events. It is used by one goroutine.
type translator struct {
	// emit sends one update; its error ends the run.
	emit func(update any) error
	// inner is told the id of the raider's own session whenever an event names it.
	inner func(id string)

	prefix   string // of ids, which other runs of the session must not use
	messages int
	calls    toolCalls
	plans    plans
	said     said
	finished *finished
}

// finished is what run.finished says.
type finished struct {
	status   string
	response string
	failure  string
	signal   string
	facts    map[string]json.RawMessage // what it holds besides
}

// newTranslator begins a run. prefix makes its ids unique in the session, whose other runs
// call their tools by the same names.
func newTranslator(prefix string, emit func(any) error, inner func(string)) *translator {
	return &translator{prefix: prefix, emit: emit, inner: inner, calls: newToolCalls(prefix)}
}

// handle takes one event. What it doesn't know, and what comes after run.finished, it
// ignores.
func (t *translator) handle(e event) error {
	if t.finished != nil {
		return nil
	}
	if id := e.inner(); id != "" {
		t.inner(id)
	}
	switch e.kind {
	case "message":
		if role := e.text("role"); role != "" && role != "assistant" {
			return nil // the prompt, said again
		}
		text := e.text("content", "text")
		t.said.add(text)
		return t.chunk("agent_message_chunk", text)
	case "thinking":
		return t.chunk("agent_thought_chunk", e.text("content", "text"))
	case "tool.call":
		return t.emitAll(t.calls.begin(e))
	case "tool.output":
		return t.emitAll(t.calls.output(e))
	case "tool.result":
		return t.emitAll(t.calls.result(e))
	case "plan", "todo":
		return t.emit(planUpdate{SessionUpdate: "plan", Entries: t.plans.set(e)})
	case "run.started", "run.state", "goal", "warning":
		return t.emit(infoUpdate{SessionUpdate: "session_info_update", Meta: meta{Ours: metaEvent{Event: e.without()}}})
	case "run.finished":
		t.finished = &finished{
			status: e.text("status"), response: e.text("response"), failure: e.text("error"), signal: e.text("signal"),
			facts: e.without("type", "time", "status", "response", "error"),
		}
	}
	return nil
}

// end sends what is left to say when the run has ended: tool calls that got no result have
// failed, and a response that no message carried is the last chunk.
func (t *translator) end() error {
	if err := t.emitAll(t.calls.abandon()); err != nil {
		return err
	}
	f := t.finished
	if f == nil || f.status == "refused" || t.said.carried(f.response) {
		return nil
	}
	return t.chunk("agent_message_chunk", f.response)
}

func (t *translator) emitAll(updates []toolUpdate) error {
	for _, u := range updates {
		if err := t.emit(u); err != nil {
			return err
		}
	}
	return nil
}

// chunk sends a text, which is a message of its own: without an id it would run into the
// one before it.
func (t *translator) chunk(kind, text string) error {
	if text == "" {
		return nil
	}
	t.messages++
	return t.emit(chunkUpdate{
		SessionUpdate: kind, MessageID: t.prefix + "/m" + strconv.Itoa(t.messages), Content: textBlock{Type: "text", Text: text},
	})
}

// The updates as ACP has them.
type (
	chunkUpdate struct {
		SessionUpdate string    `json:"sessionUpdate"`
		MessageID     string    `json:"messageId"`
		Content       textBlock `json:"content"`
	}
	textBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	// infoUpdate carries an event that ACP has no update for: as _meta of an update that
	// changes nothing else, so that clients which don't know it lose nothing.
	infoUpdate struct {
		SessionUpdate string `json:"sessionUpdate"`
		Meta          meta   `json:"_meta"`
	}
	meta struct {
		Ours any `json:"raiderfleet"`
	}
	metaEvent struct {
		Event map[string]json.RawMessage `json:"event"`
	}
)
