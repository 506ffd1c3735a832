package acpclient

import (
	"context"
	"encoding/json"
)

// LoadSession opens a session again: its conversation comes as updates before it returns,
// then what happens in it. cwd must be the session's, mcpServers is an array; nil is none.
func (c *Client) LoadSession(ctx context.Context, session, cwd string, mcpServers json.RawMessage) error {
	if len(mcpServers) == 0 {
		mcpServers = json.RawMessage(`[]`)
	}
	_, err := c.conn.Call(ctx, "session/load", map[string]any{
		"sessionId": session, "cwd": cwd, "mcpServers": mcpServers,
	})
	return err
}
