package frontdoor

import (
	"encoding/json"
	"strconv"

	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
)

// protocolVersion is the newest ACP version that is spoken here.
const protocolVersion = 1

type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type mcpCapabilities struct {
	HTTP bool `json:"http"`
	SSE  bool `json:"sse"`
}

type agentCapabilities struct {
	LoadSession         bool                `json:"loadSession"`
	PromptCapabilities  PromptCapabilities  `json:"promptCapabilities"`
	MCPCapabilities     mcpCapabilities     `json:"mcpCapabilities"`
	SessionCapabilities map[string]struct{} `json:"sessionCapabilities"`
}

type initializeResponse struct {
	ProtocolVersion   int               `json:"protocolVersion"`
	AgentInfo         implementation    `json:"agentInfo"`
	AgentCapabilities agentCapabilities `json:"agentCapabilities"`
	AuthMethods       []struct{}        `json:"authMethods"`
}

// checkVersion refuses a version that is no whole number; a missing one means 1.
func checkVersion(params json.RawMessage) error {
	raw, ok := rawjson.Get(params, "protocolVersion")
	if !ok || string(raw) == "null" {
		return nil
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err != nil {
		return invalidParams("protocolVersion must be a whole number")
	}
	return nil
}

// initialize answers with version 1, whichever was asked for: a client that does not
// speak it closes the connection.
func (c *conn) initialize(r *rpc.Request) {
	params, err := asObject(r.Params)
	if err == nil {
		err = checkVersion(params)
	}
	if err != nil {
		answerError(c.log, r, c.f.fault(err))
		return
	}
	c.f.firstAgents(c.ctx)
	can, _ := c.f.can(c.f.fallback.raider)
	version := c.f.c.Version
	if version == "" {
		version = "unknown"
	}
	c.can.Store(newCapabilities(params))
	c.mu.Lock()
	c.initialized = true
	c.mu.Unlock()
	answer(c.log, r, initializeResponse{
		ProtocolVersion: protocolVersion,
		AgentInfo:       implementation{Name: "raiderfleet", Version: version},
		AgentCapabilities: agentCapabilities{
			LoadSession:         true,
			PromptCapabilities:  can.Prompt,
			MCPCapabilities:     can.MCP, // MCP over stdio is every agent's
			SessionCapabilities: map[string]struct{}{"close": {}, "delete": {}, "list": {}, "resume": {}},
		},
		AuthMethods: []struct{}{},
	})
}
