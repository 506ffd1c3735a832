package frontdoor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
)

// turn is an open session/prompt.
type turn struct {
	prompt subjects.PromptID
	req    *rpc.Request
	blocks []string        // the types of its content blocks
	title  string          // what it would call its session
	ctx    context.Context //nolint:containedctx // ends when it has been answered
	end    context.CancelFunc
	watch  func() bool // ends the watch for the peer's $/cancel_request

	// Guarded by attachment.mu.
	meta          subjects.SessionMeta // when published
	published     bool                 // it may be in BACKLOG
	accepted      bool                 // it is, or was
	seq           uint64               // in BACKLOG, when accepted
	payload       string               // its object, when it is large
	started       bool                 // an event of its run was seen
	cancelled     bool                 // it is to end cancelled
	peerCancelled bool                 // by $/cancel_request
	withdrawn     bool                 // its record says cancelled: the message is to be deleted
	shut          bool                 // its session was found closed: that is its answer when it ends cancelled
	closing       bool                 // somebody answers it
	place         int                  // that was told last
	lost          time.Time            // since when neither its message nor its record was found
}

// prompt takes a session/prompt. It does not block; the turn is answered later.
func (c *conn) prompt(r *rpc.Request) error {
	id, err := sessionOf(r.Params)
	if err != nil {
		return err
	}
	session, err := subjects.ParseSession(id)
	if err != nil {
		return sessionNotFound(id)
	}
	blocks, title, err := promptBlocks(r.Params)
	if err != nil {
		return err
	}
	t := &turn{prompt: subjects.NewPrompt(), req: r, blocks: blocks, title: title}
	for {
		a, err := c.attach(session)
		if err != nil {
			return err
		}
		if a.enter(t) {
			a.open(nil, false, nil)
			a.startSubmitter()
			return nil
		}
	}
}

// maxTitle is how long a title gets, in characters.
const maxTitle = 80

// titleOf is the first line of a text that has one, cut.
func titleOf(text string) string {
	for line := range strings.Lines(text) {
		words := strings.Join(strings.Fields(line), " ")
		if words == "" {
			continue
		}
		if r := []rune(words); len(r) > maxTitle {
			words = string(r[:maxTitle-1]) + "…"
		}
		return words
	}
	return ""
}

// promptBlocks checks the content and returns the types of its blocks, and the title that it
// would give its session.
func promptBlocks(params json.RawMessage) (types []string, title string, err error) {
	raw, ok := rawjson.Get(params, "prompt")
	if !ok || raw[0] != '[' {
		return nil, "", invalidParams("prompt must be an array of content blocks")
	}
	var list []struct {
		Type     string          `json:"type"`
		Text     *string         `json:"text"`
		URI      *string         `json:"uri"`
		Name     *string         `json:"name"`
		Data     *string         `json:"data"`
		MimeType *string         `json:"mimeType"`
		Resource json.RawMessage `json:"resource"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, "", invalidParams("prompt: %s", mismatch(err))
	}
	if len(list) == 0 {
		return nil, "", invalidParams("prompt is empty")
	}
	blank := true
	for i, b := range list {
		need := func(name string, there bool) error {
			if !there {
				return invalidParams("prompt[%d]: %s is missing", i, name)
			}
			return nil
		}
		switch b.Type {
		case "text":
			if err := need("text", b.Text != nil); err != nil {
				return nil, "", err
			}
			blank = blank && strings.TrimSpace(*b.Text) == ""
			title = cmp.Or(title, titleOf(*b.Text))
		case "image", "audio":
			if err := cmp.Or(need("data", b.Data != nil), need("mimeType", b.MimeType != nil)); err != nil {
				return nil, "", err
			}
			blank = false
		case "resource":
			if err := need("resource", rawjson.IsObject(b.Resource)); err != nil {
				return nil, "", err
			}
			blank = false
		case "resource_link":
			if err := cmp.Or(need("uri", b.URI != nil), need("name", b.Name != nil)); err != nil {
				return nil, "", err
			}
			blank = false
		default:
			return nil, "", invalidParams("prompt[%d]: unknown type of content", i)
		}
		if !slices.Contains(types, b.Type) {
			types = append(types, b.Type)
		}
	}
	if blank {
		return nil, "", invalidParams("prompt is blank")
	}
	return types, title, nil
}

// takes says whether a raider takes all that a turn has.
func (p PromptCapabilities) takes(raider subjects.Raider, types []string) error {
	for _, t := range types {
		if t == "image" && !p.Image || t == "audio" && !p.Audio || t == "resource" && !p.EmbeddedContext {
			return invalidParams("raider %s takes no content of type %s", raider, t)
		}
	}
	return nil
}

// enter adds a turn; false when the attachment has just ended.
func (a *attachment) enter(t *turn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	t.ctx, t.end = context.WithCancel(a.ctx)
	a.turns = append(a.turns, t)
	a.queue = append(a.queue, t)
	t.watch = context.AfterFunc(t.req.Context(), func() {
		if peerCancelled(t.req) {
			a.cancelTurn(t)
		}
	})
	return true
}

// peerCancelled says whether the client sent $/cancel_request for r.
func peerCancelled(r *rpc.Request) bool {
	return errors.Is(context.Cause(r.Context()), rpc.ErrPeerCancelled)
}

// closeTurn answers a turn, once.
func (a *attachment) closeTurn(t *turn, reply func(*rpc.Request)) {
	a.mu.Lock()
	if t.closing {
		a.mu.Unlock()
		return
	}
	t.closing = true
	if a.answered = append(a.answered, t.prompt); len(a.answered) > maxAnswered {
		a.answered = slices.Delete(a.answered, 0, len(a.answered)-maxAnswered/2)
	}
	a.mu.Unlock()
	t.watch()
	reply(t.req)
	// Only now: while a turn is open the connection is not closed.
	a.mu.Lock()
	a.turns = slices.DeleteFunc(a.turns, func(other *turn) bool { return other == t })
	a.mu.Unlock()
	t.end()
	a.c.wake()
}

// conclude answers a turn with its prompt's outcome.
func (a *attachment) conclude(t *turn, out subjects.Outcome) {
	out.Prompt = t.prompt
	a.withdrawAsks(t.prompt)
	a.closeTurn(t, func(r *rpc.Request) {
		a.mu.Lock()
		byPeer, shut := t.peerCancelled, t.shut
		a.mu.Unlock()
		switch out.State {
		case subjects.RunCompleted:
			answer(a.log, r, completed(out))
		case subjects.RunCancelled:
			if shut {
				answerError(a.log, r, sessionClosed(a.session))
				return
			}
			if byPeer {
				answerError(a.log, r, &rpc.Error{Code: rpc.CodeRequestCancelled, Message: "request cancelled"})
				return
			}
			answer(a.log, r, json.RawMessage(`{"stopReason":"cancelled"}`))
		case subjects.RunFailed, subjects.RunRefused, subjects.RunRunning:
			answerError(a.log, r, promptError(out))
		default:
			answerError(a.log, r, promptError(out))
		}
	})
}

// completed is the raider's own answer where it is one.
func completed(out subjects.Outcome) json.RawMessage {
	if reason, ok := rawjson.Get(out.Result, "stopReason"); ok && reason[0] == '"' {
		return out.Result
	}
	return object(map[string]string{"stopReason": out.StopReason})
}
