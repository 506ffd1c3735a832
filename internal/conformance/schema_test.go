package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaVariable names a newer schema that is checked as well.
const schemaVariable = "RAIDERFLEET_ACP_SCHEMA"

// schemas are what every line is checked against, loaded once.
var schemas = sync.OnceValues(loadSchemas)

func loadSchemas() ([]*protocolSchema, error) {
	dir, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/coder/acp-go-sdk").Output()
	if err != nil {
		return nil, fmt.Errorf("find the SDK's module: %w", err)
	}
	paths := []string{filepath.Join(strings.TrimSpace(string(dir)), "schema", "schema.json")}
	if newer := os.Getenv(schemaVariable); newer != "" {
		paths = append(paths, newer)
	}
	var out []*protocolSchema
	for _, path := range paths {
		s, err := loadSchema(path)
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", path, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// protocolSchema checks what an agent sends to a client. Safe for many goroutines.
type protocolSchema struct {
	name          string
	results       map[string]*jsonschema.Schema // by the method that was asked for
	requests      map[string]*jsonschema.Schema
	notifications map[string]*jsonschema.Schema
	fault         *jsonschema.Schema
	booleans      bool // it knows options that are on or off
}

// loadSchema compiles the definitions of one schema file. Which of them belongs to
// which method, the file says itself.
func loadSchema(path string) (*protocolSchema, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	doc, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		return nil, err
	}
	const url = "acp:schema"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(url, doc); err != nil {
		return nil, err
	}
	s := &protocolSchema{
		name:    path,
		results: map[string]*jsonschema.Schema{}, requests: map[string]*jsonschema.Schema{}, notifications: map[string]*jsonschema.Schema{},
	}
	root, _ := doc.(map[string]any)
	defs, _ := root["$defs"].(map[string]any)
	_, s.booleans = defs["SessionConfigBoolean"]
	for name, def := range defs {
		fields, _ := def.(map[string]any)
		method, _ := fields["x-method"].(string)
		side, _ := fields["x-side"].(string)
		var into map[string]*jsonschema.Schema
		switch {
		case side == "agent" && strings.HasSuffix(name, "Response"):
			into = s.results
		case side == "client" && strings.HasSuffix(name, "Request"):
			into = s.requests
		case side != "agent" && strings.HasSuffix(name, "Notification"):
			into = s.notifications
		default:
			continue
		}
		if into[method], err = compiler.Compile(url + "#/$defs/" + name); err != nil {
			return nil, err
		}
	}
	if s.fault, err = compiler.Compile(url + "#/$defs/Error"); err != nil {
		return nil, err
	}
	if len(s.results) == 0 || s.notifications["session/update"] == nil {
		return nil, errors.New("the file names no methods")
	}
	return s, nil
}

// check validates a message. asked is the method of the request that a response
// answers, empty when it answers none.
func (s *protocolSchema) check(m message, asked string) error {
	switch {
	case m.Error != nil:
		return validate(s.fault, m.Error)
	case m.Method != "" && m.ID != nil:
		return s.params(s.requests, m)
	case m.Method != "":
		return s.params(s.notifications, m)
	case asked == "":
		return errors.New("a result that nobody asked for")
	}
	schema := s.results[asked]
	if asked == "session/cancel" {
		return nil // a notification; who sends it with an id is answered {} all the same
	}
	if schema == nil && asked == "session/delete" && string(m.Result) == "{}" {
		return nil // younger than the SDK's schema; the newer one has it
	}
	if schema == nil {
		return fmt.Errorf("the schema has no result for %s", asked)
	}
	return validate(schema, m.Result)
}

func (s *protocolSchema) params(of map[string]*jsonschema.Schema, m message) error {
	schema := of[m.Method]
	if schema == nil {
		if m.Method == "$/cancel_request" || strings.HasPrefix(m.Method, "elicitation/") {
			return nil // younger than the SDK's schema
		}
		if strings.HasPrefix(m.Method, "_") {
			return nil // an extension
		}
		return fmt.Errorf("the schema does not let an agent send %s", m.Method)
	}
	return validate(schema, m.Params)
}

func validate(schema *jsonschema.Schema, raw json.RawMessage) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// A validator that lets everything pass would prove nothing.
func TestSchemaBites(t *testing.T) {
	t.Parallel()
	all, err := schemas()
	if err != nil {
		t.Fatal(err)
	}
	one := json.RawMessage("1")
	cases := []struct {
		name, asked string
		m           message
		good        bool
	}{
		{"result", "session/new", message{ID: one, Result: json.RawMessage(`{"sessionId":"s"}`)}, true},
		{"result without its field", "session/new", message{ID: one, Result: json.RawMessage(`{}`)}, false},
		{"null for an object", "session/load", message{ID: one, Result: json.RawMessage(`null`)}, false},
		{"unknown stop reason", "session/prompt", message{ID: one, Result: json.RawMessage(`{"stopReason":"tired"}`)}, false},
		{"result that nobody asked for", "", message{ID: one, Result: json.RawMessage(`{}`)}, false},
		{"update", "", message{Method: "session/update", Params: json.RawMessage(`{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}`)}, true},
		{"update without a session", "", message{Method: "session/update", Params: json.RawMessage(`{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}`)}, false},
		{"chunk without content", "", message{Method: "session/update", Params: json.RawMessage(`{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk"}}`)}, false},
		{"permission without options", "", message{ID: one, Method: "session/request_permission", Params: json.RawMessage(`{"sessionId":"s","toolCall":{"toolCallId":"t"}}`)}, false},
		{"error", "session/prompt", message{ID: one, Error: json.RawMessage(`{"code":-32000,"message":"x"}`)}, true},
		{"error without a code", "session/prompt", message{ID: one, Error: json.RawMessage(`{"message":"x"}`)}, false},
		{"method of the other side", "", message{ID: one, Method: "session/prompt", Params: json.RawMessage(`{}`)}, false},
	}
	for _, s := range all {
		for _, c := range cases {
			if err := s.check(c.m, c.asked); (err == nil) != c.good {
				t.Errorf("%s: %s: got error %v, good is %v", s.name, c.name, err, c.good)
			}
		}
	}
}
