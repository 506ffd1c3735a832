package demo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"raiderfleet/internal/demo"
	"raiderfleet/internal/rpc"
)

// set chooses and gives the answer, or the error's code and data.
func (c *client) set(t *testing.T, session, method, params string) string {
	t.Helper()
	got, err := c.conn.Call(t.Context(), method, json.RawMessage(fmt.Sprintf(`{"sessionId":%q,%s}`, session, params)))
	var e *rpc.Error
	switch {
	case errors.As(err, &e):
		return fmt.Sprintf("%d %s", e.Code, e.Data)
	case err != nil:
		t.Fatal(err)
	}
	return string(got)
}

// What is chosen is told, holds in another process, and what can't be chosen is refused.
func TestSettings(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	first := start(t, state, "")
	made := first.call(t, "session/new", `{"cwd":"/","mcpServers":[]}`)
	modes, options := demo.Settings()
	for _, want := range []string{string(modes), string(options)} {
		if want == "" || !strings.Contains(made, want) {
			t.Errorf("session/new answers %s without %s", made, want)
		}
	}
	var opened struct {
		ID string `json:"sessionId"`
	}
	if err := json.Unmarshal([]byte(made), &opened); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ method, params, want string }{
		{"session/set_mode", `"modeId":"plan"`, `{}`},
		{"session/set_mode", `"modeId":"party"`, `-32602 {"modeId":"party"}`},
		{"session/set_config_option", `"configId":"model","value":"huge"`, `-32602 {"configId":"model","value":"huge"}`},
		{"session/set_config_option", `"configId":"effort","value":"high"`, `-32602 {"configId":"effort","value":"high"}`},
		{"session/set_config_option", `"configId":"verbose","type":"boolean","value":true`, `-32602 {"configId":"verbose","value":true}`},
	} {
		if got := first.set(t, opened.ID, x.method, x.params); got != x.want {
			t.Errorf("%s %s: %s", x.method, x.params, got)
		}
	}
	// Another option goes with the large model.
	if got := first.set(t, opened.ID, "session/set_config_option", `"configId":"model","value":"large"`); !strings.Contains(got, `"id":"effort"`) {
		t.Errorf("the large model: %s", got)
	}
	first.set(t, opened.ID, "session/set_config_option", `"configId":"effort","value":"high"`)
	const chosen = "agent_message_chunk mode=plan model=large effort=high"
	if _, said := first.prompt(t, opened.ID, "settings"); strings.Join(said, "|") != chosen {
		t.Errorf("chosen: %q", said)
	}

	second := start(t, state, "")
	second.call(t, "initialize", `{"protocolVersion":1,"clientCapabilities":{"session":{"configOptions":{"boolean":{}}}}}`)
	loaded := second.call(t, "session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/","mcpServers":[]}`, opened.ID))
	for _, want := range []string{`"currentModeId":"plan"`, `"currentValue":"large"`, `"currentValue":"high"`, `"id":"verbose"`} {
		if !strings.Contains(loaded, want) {
			t.Errorf("session/load answers %s without %s", loaded, want)
		}
	}
	second.seen()
	second.set(t, opened.ID, "session/set_config_option", `"configId":"verbose","type":"boolean","value":true`)
	if _, said := second.prompt(t, opened.ID, "settings"); strings.Join(said, "|") != chosen+" verbose" {
		t.Errorf("chosen after a load: %q", said)
	}
}
