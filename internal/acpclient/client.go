// Package acpclient is a small ACP client: one connection to a front door, sessions,
// prompts, permission requests. Printer shows a turn to a person or a program; Terminal
// asks a person.
package acpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"raiderfleet/internal/rpc"
)

// cancelledOutcome refuses a permission request.
const cancelledOutcome = `{"outcome":"cancelled"}`

// Options say what is done with what the agent sends.
type Options struct {
	// Name and Version go to the agent as clientInfo.
	Name, Version string
	// Update gets the params of each session/update, in order, one at a time and before
	// the answer of its turn. Nothing is read while it runs. Default: dropped.
	Update func(params json.RawMessage)
	// Permission chooses an option of a permission request and returns its id; "" refuses.
	// It may block and is called on a goroutine of its own; ctx ends when the request is
	// withdrawn. Default: refuses.
	Permission func(ctx context.Context, r PermissionRequest) string
	Logger     *slog.Logger
}

// PermissionRequest is what a person decides on.
type PermissionRequest struct {
	Session  string `json:"sessionId"`
	ToolCall struct {
		ID    string `json:"toolCallId"`
		Title string `json:"title"`
		Kind  string `json:"kind"`
	} `json:"toolCall"`
	Options []PermissionOption `json:"options"`
}

// PermissionOption is one answer that the agent offers.
type PermissionOption struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	// Kind is allow_once, allow_always, reject_once or reject_always.
	Kind string `json:"kind"`
}

// Client is a connection. Its methods are safe for many goroutines.
type Client struct {
	o    Options
	conn *rpc.Conn
	asks sync.WaitGroup

	mu    sync.Mutex // guards ended
	ended bool       // no new goroutine: Run waits for those that there are
}

// New makes a client on the two directions of a connection, which Close closes.
func New(r io.Reader, w io.Writer, o Options) *Client {
	if o.Update == nil {
		o.Update = func(json.RawMessage) {}
	}
	if o.Permission == nil {
		o.Permission = func(context.Context, PermissionRequest) string { return "" }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{o: o}
	c.conn = rpc.NewConn(r, w, handler{c}, rpc.Options{IDPrefix: "cli-", Logger: o.Logger})
	return c
}

// Run reads until the connection ends, and waits for open permission requests. Calls
// need it. Its error is that of reading, nil at the end of the connection.
func (c *Client) Run(ctx context.Context) error {
	err := c.conn.Run(ctx)
	c.mu.Lock()
	c.ended = true // the last request that was read may be handled still
	c.mu.Unlock()
	c.asks.Wait()
	return err
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Initialize opens the protocol.
func (c *Client) Initialize(ctx context.Context) error {
	_, err := c.conn.Call(ctx, "initialize", map[string]any{
		"protocolVersion":    1,
		"clientCapabilities": map[string]any{},
		"clientInfo":         map[string]string{"name": c.o.Name, "version": c.o.Version},
	})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	return nil
}

// NewSession opens a session in an absolute directory. An empty raider is the default one.
func (c *Client) NewSession(ctx context.Context, cwd, raider string) (string, error) {
	meta := map[string]any{}
	if raider != "" {
		meta["raiderfleet/raider"] = raider
	}
	return c.newSession(ctx, cwd, meta)
}

// NewSlotSession opens a session that is the slot's own: prompts that are spawned to the
// slot go on in it.
func (c *Client) NewSlotSession(ctx context.Context, cwd, slot string) (string, error) {
	return c.newSession(ctx, cwd, map[string]any{"raiderfleet/raider": slot, "raiderfleet/slots_own": true})
}

func (c *Client) newSession(ctx context.Context, cwd string, meta map[string]any) (string, error) {
	params := map[string]any{"cwd": cwd, "mcpServers": []any{}}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	raw, err := c.conn.Call(ctx, "session/new", params)
	if err != nil {
		return "", err
	}
	var result struct {
		Session string `json:"sessionId"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", fmt.Errorf("session/new answered: %w", err)
	}
	if result.Session == "" {
		return "", errors.New("session/new answered no session")
	}
	return result.Session, nil
}

// Result is how a turn ended.
type Result struct {
	StopReason string `json:"stopReason"`
	// Raw is the agent's answer as it came.
	Raw json.RawMessage `json:"-"`
}

// Prompt runs a turn with a text and waits for its end. An *rpc.Error is the agent's.
func (c *Client) Prompt(ctx context.Context, session, text string) (Result, error) {
	raw, err := c.conn.Call(ctx, "session/prompt", map[string]any{
		"sessionId": session,
		"prompt":    []any{map[string]string{"type": "text", "text": text}},
	})
	if err != nil {
		return Result{}, err
	}
	r := Result{Raw: raw}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Result{}, fmt.Errorf("session/prompt answered: %w", err)
	}
	return r, nil
}

// CloseSession closes a session and waits until nothing of it runs.
func (c *Client) CloseSession(ctx context.Context, session string) error {
	_, err := c.conn.Call(ctx, "session/close", map[string]string{"sessionId": session})
	return err
}

// Cancel asks for the end of the session's turns; their prompts are answered as usual.
func (c *Client) Cancel(session string) error {
	return c.conn.Notify("session/cancel", map[string]string{"sessionId": session})
}

// handler keeps the methods of rpc.Handler out of the client's.
type handler struct{ c *Client }

// HandleNotification passes session updates on.
func (h handler) HandleNotification(_ context.Context, _ *rpc.Conn, method string, params json.RawMessage) {
	if method == "session/update" {
		h.c.o.Update(params)
	}
}

// HandleRequest answers permission requests; nothing else is offered.
func (h handler) HandleRequest(_ context.Context, _ *rpc.Conn, r *rpc.Request) {
	c := h.c
	if r.Method != "session/request_permission" {
		c.refuse(r, rpc.CodeMethodNotFound, "method not found: "+r.Method)
		return
	}
	var ask PermissionRequest
	if err := json.Unmarshal(r.Params, &ask); err != nil {
		c.refuse(r, rpc.CodeInvalidParams, "params are not those of session/request_permission")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return // nobody is left who would be answered
	}
	c.asks.Go(func() {
		outcome := json.RawMessage(cancelledOutcome)
		if id := c.o.Permission(r.Context(), ask); id != "" {
			if text, err := json.Marshal(map[string]string{"outcome": "selected", "optionId": id}); err == nil {
				outcome = text
			}
		}
		c.reply(r.Reply(map[string]json.RawMessage{"outcome": outcome}))
	})
}

// refuse answers with an error.
func (c *Client) refuse(r *rpc.Request, code int64, message string) {
	c.reply(r.ReplyError(&rpc.Error{Code: code, Message: message}))
}

// reply notes an answer that could not be given: the connection ended, or the request was
// withdrawn.
func (c *Client) reply(err error) {
	if err != nil {
		c.o.Logger.Debug("answer not sent", "error", err)
	}
}
