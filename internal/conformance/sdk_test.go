package conformance

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/acp-go-sdk"
)

// editor is the SDK's client with a user who answers asks by the option's kind.
type editor struct {
	acp.Client // what it does not offer is never called

	mu      sync.Mutex // guards the rest
	choose  acp.PermissionOptionKind
	asked   []acp.RequestPermissionRequest
	updates []acp.SessionNotification
	seen    chan struct{} // gets a value when an update came, if there is room
}

// SessionUpdate notes the update.
func (e *editor) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.updates = append(e.updates, n)
	select {
	case e.seen <- struct{}{}:
	default:
	}
	return nil
}

// RequestPermission answers with the option of the wanted kind.
func (e *editor) RequestPermission(_ context.Context, r acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, r)
	for _, o := range r.Options {
		if o.Kind == e.choose {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
		}
	}
	return acp.RequestPermissionResponse{}, errors.New("no such option")
}

func (e *editor) want(kind acp.PermissionOptionKind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.choose = kind
}

// take returns the updates since the last call.
func (e *editor) take() []acp.SessionNotification {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.updates
	e.updates = nil
	return out
}

// said is the agent's text in updates.
func said(updates []acp.SessionNotification) string {
	var b strings.Builder
	for _, u := range updates {
		if c := u.Update.AgentMessageChunk; c != nil && c.Content.Text != nil {
			b.WriteString(c.Content.Text.Text)
		}
	}
	return b.String()
}

func (f *fleet) editor(t *testing.T, transport string) (*editor, *acp.ClientSideConnection) {
	t.Helper()
	conn := f.dial(t, transport, 0)
	e := &editor{seen: make(chan struct{}, 1)}
	sdk := acp.NewClientSideConnection(e, conn, conn)
	sdk.SetLogger(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = conn.Close(); <-sdk.Done() })
	hello, err := sdk.Initialize(t.Context(), acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber})
	if err != nil {
		t.Fatal(err)
	}
	if hello.ProtocolVersion != 1 || !hello.AgentCapabilities.LoadSession || hello.AgentInfo == nil || hello.AgentInfo.Name != "raiderfleet" {
		t.Fatalf("initialize answered %+v", hello)
	}
	return e, sdk
}

// An independent client does a whole working day: every word of the demo raider.
func TestSDKClient(t *testing.T) {
	t.Parallel()
	onEachKind(t, nil, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		e, sdk := f.editor(t, transport)
		cwd := t.TempDir()
		session, err := sdk.NewSession(t.Context(), acp.NewSessionRequest{Cwd: cwd, McpServers: []acp.McpServer{}})
		if err != nil {
			t.Fatal(err)
		}
		prompt := func(t *testing.T, text string) (acp.PromptResponse, []acp.SessionNotification, error) {
			t.Helper()
			e.take()
			r, err := sdk.Prompt(t.Context(), acp.PromptRequest{SessionId: session.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
			updates := e.take()
			for _, u := range updates {
				if u.SessionId != session.SessionId {
					t.Errorf("an update names session %s, not %s", u.SessionId, session.SessionId)
				}
			}
			return r, updates, err
		}
		turn := func(t *testing.T, text string) []acp.SessionNotification {
			t.Helper()
			r, updates, err := prompt(t, text)
			if err != nil || r.StopReason != acp.StopReasonEndTurn {
				t.Fatalf("%s: %v, stop reason %q", text, err, r.StopReason)
			}
			return updates
		}
		has := func(t *testing.T, text string, f func(acp.SessionUpdate) bool) {
			t.Helper()
			if !slices.ContainsFunc(turn(t, text), func(n acp.SessionNotification) bool { return f(n.Update) }) {
				t.Errorf("%s did not send its update", text)
			}
		}
		if got := said(turn(t, "echo hello  fleet")); got != "hello  fleet" {
			t.Errorf("echo said %q", got)
		}
		has(t, "think", func(u acp.SessionUpdate) bool { return u.AgentThoughtChunk != nil })
		has(t, "plan", func(u acp.SessionUpdate) bool { return u.Plan != nil && len(u.Plan.Entries) > 0 })
		has(t, "tool", func(u acp.SessionUpdate) bool { return u.ToolCall != nil })
		has(t, "tool", func(u acp.SessionUpdate) bool { return u.ToolCallUpdate != nil })
		if got := said(turn(t, "cwd")); !strings.Contains(got, cwd) {
			t.Errorf("cwd said %q, not %s", got, cwd)
		}
		if got := len(said(turn(t, "stream 100 64"))); got != 6400 {
			t.Errorf("stream sent %d bytes", got)
		}
		for _, ask := range []struct {
			kind acp.PermissionOptionKind
			says string
		}{
			{acp.PermissionOptionKindAllowOnce, "allowed once"},
			{acp.PermissionOptionKindRejectOnce, "rejected"},
			{acp.PermissionOptionKindAllowAlways, "allowed always"},
		} {
			e.want(ask.kind)
			if got := said(turn(t, "ask")); !strings.Contains(got, ask.says) {
				t.Errorf("ask answered %s said %q", ask.kind, got)
			}
		}
		for _, r := range e.asked {
			if r.SessionId != session.SessionId || r.ToolCall.ToolCallId == "" || r.ToolCall.Title == nil || r.ToolCall.RawInput == nil ||
				r.ToolCall.Status == nil || *r.ToolCall.Status != acp.ToolCallStatusPending {
				t.Errorf("the ask is incomplete: %+v", r)
			}
		}

		_, updates, err := prompt(t, "fail the disk is full")
		var fault *acp.RequestError
		if !errors.As(err, &fault) || fault.Code != -32000 || !strings.Contains(fault.Message, "the disk is full") {
			t.Errorf("fail answered %v", err)
		}
		if strings.Contains(said(updates), "disk is full") {
			t.Error("the error came as a message of the agent")
		}

		go func() {
			<-e.seen // sleep sends a chunk a second
			if err := sdk.Cancel(context.WithoutCancel(t.Context()), acp.CancelNotification{SessionId: session.SessionId}); err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("cancel: %v", err)
			}
		}()
		select {
		case <-e.seen:
		default:
		}
		r, _, err := prompt(t, "sleep 60")
		if err != nil || r.StopReason != acp.StopReasonCancelled {
			t.Errorf("a cancelled turn answered %v, %q", err, r.StopReason)
		}

		// Another connection sees the conversation again.
		other, second := f.editor(t, transport)
		if _, err := second.LoadSession(t.Context(), acp.LoadSessionRequest{SessionId: session.SessionId, Cwd: cwd, McpServers: []acp.McpServer{}}); err != nil {
			t.Fatalf("session/load: %v", err)
		}
		replay := other.take()
		if got := said(replay); !strings.HasPrefix(got, "hello  fleet") {
			t.Errorf("the replay says %.100q", got)
		}
		first := replay[0].Update.UserMessageChunk
		if first == nil || first.Content.Text == nil || first.Content.Text.Text != "echo hello  fleet" {
			t.Errorf("the replay does not begin with the user's message: %+v", replay[0].Update)
		}
	})
}
