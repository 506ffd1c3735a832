//go:build unix

package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas check what an agent sends, by method: those of the independent SDK's module, and
// of a newer file where one is named.
var schemas = sync.OnceValues(func() ([]map[string]*jsonschema.Schema, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/coder/acp-go-sdk").Output()
	if err != nil {
		return nil, fmt.Errorf("find the SDK's module: %w", err)
	}
	paths := []string{filepath.Join(strings.TrimSpace(string(dir)), "schema", "schema.json")}
	if newer := os.Getenv("RAIDERFLEET_ACP_SCHEMA"); newer != "" {
		paths = append(paths, newer)
	}
	var all []map[string]*jsonschema.Schema
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("acp:schema", doc); err != nil {
			return nil, err
		}
		methods := map[string]*jsonschema.Schema{}
		for method, name := range map[string]string{
			"session/update": "SessionNotification", "session/request_permission": "RequestPermissionRequest",
			"result:initialize": "InitializeResponse", "result:session/new": "NewSessionResponse",
			"result:session/load": "LoadSessionResponse", "result:session/prompt": "PromptResponse",
		} {
			if methods[method], err = compiler.Compile("acp:schema#/$defs/" + name); err != nil {
				return nil, err
			}
		}
		all = append(all, methods)
	}
	return all, nil
})

// valid fails the test when a message breaks the schema of its method.
func valid(t *testing.T, method string, raw json.RawMessage) {
	t.Helper()
	all, err := schemas()
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for _, methods := range all {
		if err := methods[method].Validate(value); err != nil {
			t.Errorf("%s: %v\n%.2000s", method, err, raw)
		}
	}
}

// A check that lets everything pass would prove nothing.
func TestSchemaBites(t *testing.T) {
	t.Parallel()
	all, err := schemas()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		`{"sessionId":"s","update":{"sessionUpdate":"plan","entries":[{"content":"x","priority":"urgent","status":"pending"}]}}`,
		`{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","kind":"bash"}}`,
		`{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":"x"}}`,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(bad))
		if err != nil {
			t.Fatal(err)
		}
		for _, methods := range all {
			if methods["session/update"].Validate(value) == nil {
				t.Errorf("passes: %s", bad)
			}
		}
	}
}
