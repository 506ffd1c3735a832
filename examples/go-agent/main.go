// Command go-agent is an ACP agent on stdio, made with the Go SDK: it lists the session's
// directory, name by name, when it is allowed to. It is here to be read and copied.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/coder/acp-go-sdk"
)

func main() {
	a := &lister{cwd: map[acp.SessionId]string{}}
	a.mu.Lock()                                                   // the first request may come before there is something to answer it with
	a.client = acp.NewAgentSideConnection(a, os.Stdout, os.Stdin) // stdout is the protocol's
	a.client.SetLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	a.mu.Unlock()
	<-a.client.Done() // stdin has ended
}

// lister is the agent.
type lister struct {
	mu     sync.Mutex // guards the rest
	client *acp.AgentSideConnection
	cwd    map[acp.SessionId]string
}

// Initialize implements acp.Agent.
func (a *lister) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: acp.ProtocolVersionNumber}, nil
}

// NewSession implements acp.Agent.
func (a *lister) NewSession(_ context.Context, r acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := acp.SessionId(rand.Text())
	a.cwd[id] = r.Cwd
	return acp.NewSessionResponse{SessionId: id}, nil
}

// Prompt implements acp.Agent. Session/cancel ends ctx: from then on there is one answer.
func (a *lister) Prompt(ctx context.Context, r acp.PromptRequest) (acp.PromptResponse, error) {
	a.mu.Lock()
	client, dir, ok := a.client, a.cwd[r.SessionId], a.cwd[r.SessionId] != ""
	a.mu.Unlock()
	if !ok {
		return acp.PromptResponse{}, acp.NewInvalidParams(map[string]any{"error": "no such session"})
	}
	err := (&turn{client: client, session: r.SessionId, dir: dir}).run(ctx)
	if ctx.Err() != nil { // whatever the turn came to: a cancelled one is not an error
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil //nolint:nilerr // see above
	}
	if err != nil {
		// The client shows the message; the SDK's own would only say 'Internal error'.
		return acp.PromptResponse{}, &acp.RequestError{Code: -32603, Message: err.Error()}
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

// Cancel implements acp.Agent. The SDK has ended the prompt's context already.
func (a *lister) Cancel(context.Context, acp.CancelNotification) error { return nil }

// turn is one prompt.
type turn struct {
	client  *acp.AgentSideConnection
	session acp.SessionId
	dir     string
}

func (t *turn) run(ctx context.Context) error {
	call := acp.ToolCallId("call-" + rand.Text()) // another one in each turn
	title := "List " + t.dir
	input := map[string]any{"path": t.dir}
	start := acp.StartToolCall(call, title, acp.WithStartKind(acp.ToolKindRead),
		acp.WithStartStatus(acp.ToolCallStatusPending), acp.WithStartRawInput(input))
	if err := t.update(ctx, start); err != nil {
		return err
	}
	answer, err := t.client.RequestPermission(ctx, acp.RequestPermissionRequest{
		SessionId: t.session,
		ToolCall: acp.ToolCallUpdate{
			ToolCallId: call, Title: &title, Kind: acp.Ptr(acp.ToolKindRead), RawInput: input,
		},
		Options: []acp.PermissionOption{
			{OptionId: "yes", Name: "Allow once", Kind: acp.PermissionOptionKindAllowOnce},
			{OptionId: "no", Name: "Reject", Kind: acp.PermissionOptionKindRejectOnce},
		},
	})
	if err != nil {
		return fmt.Errorf("ask for a permission: %w", err)
	}
	// Whatever is not the option that allows refuses, a question that was cancelled too.
	if answer.Outcome.Selected == nil || answer.Outcome.Selected.OptionId != "yes" {
		if err := t.end(ctx, call, acp.ToolCallStatusFailed); err != nil {
			return err
		}
		return t.say(ctx, "I may not look.")
	}
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		_ = t.end(ctx, call, acp.ToolCallStatusFailed) // the turn fails with the reason
		return fmt.Errorf("list the directory: %w", err)
	}
	if err := t.end(ctx, call, acp.ToolCallStatusCompleted); err != nil {
		return err
	}
	for _, e := range entries {
		if err := t.say(ctx, e.Name()+"\n"); err != nil {
			return err
		}
	}
	return t.say(ctx, fmt.Sprintf("%d in all.", len(entries)))
}

func (t *turn) say(ctx context.Context, text string) error {
	return t.update(ctx, acp.UpdateAgentMessageText(text))
}

func (t *turn) end(ctx context.Context, call acp.ToolCallId, status acp.ToolCallStatus) error {
	return t.update(ctx, acp.UpdateToolCall(call, acp.WithUpdateStatus(status)))
}

// update sends a session update, unless the turn is cancelled.
func (t *turn) update(ctx context.Context, u acp.SessionUpdate) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return t.client.SessionUpdate(ctx, acp.SessionNotification{SessionId: t.session, Update: u})
}
