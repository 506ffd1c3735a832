package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"raiderfleet/frontdoor"
	"raiderfleet/internal/natstest"
	"raiderfleet/internal/rpc"
	"raiderfleet/subjects"
	"raiderfleet/worker"
)

// pictureAgent is an agent that takes images and MCP over HTTP, and says what it got.
func pictureAgent() int {
	c := rpc.NewConn(os.Stdin, os.Stdout, pictures{}, rpc.Options{})
	if c.Run(context.Background()) != nil || c.Close() != nil {
		return 1
	}
	return 0
}

type pictures struct{}

func (pictures) HandleRequest(_ context.Context, c *rpc.Conn, r *rpc.Request) {
	switch r.Method {
	case "initialize":
		_ = r.Reply(json.RawMessage(`{"protocolVersion":1,"agentInfo":{"name":"pictures","version":"1"},"agentCapabilities":{"promptCapabilities":{"image":true},"mcpCapabilities":{"http":true}}}`))
	case "session/new":
		_ = r.Reply(json.RawMessage(`{"sessionId":"inner"}`))
	case "session/prompt":
		var p struct {
			Prompt []struct {
				Type string `json:"type"`
				Data string `json:"data"`
			} `json:"prompt"`
		}
		_ = json.Unmarshal(r.Params, &p)
		said := ""
		for _, b := range p.Prompt {
			said += fmt.Sprintf("%s %d;", b.Type, len(b.Data))
		}
		_ = c.Notify("session/update", subjects.TextChunk("inner", "agent_message_chunk", "", said))
		_ = r.Reply(json.RawMessage(`{"stopReason":"end_turn"}`))
	default:
		_ = r.ReplyError(&rpc.Error{Code: rpc.CodeMethodNotFound, Message: "no"})
	}
}

func (pictures) HandleNotification(context.Context, *rpc.Conn, string, json.RawMessage) {}

// What a client is told that the default raider takes is what its agent says, asked at the
// worker's start; it reaches the raider as it is, however large. Another raider of the
// fleet, that does not take it, refuses it.
func TestWhatTheAgentTakes(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *settings) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		s.worker.Raiders = append(s.worker.Raiders, worker.Raider{
			Name: "pictures", Command: []string{exe, "picture-agent"}, PassEnv: []string{"GORACE"}, Probe: true,
		})
		s.frontDoor.Raiders = append([]frontdoor.Raider{{Name: "pictures"}}, s.frontDoor.Raiders...)
	}, func(t *testing.T, f *fleet, transport string) {
		t.Helper()
		var can struct {
			Agent struct {
				Prompt map[string]bool `json:"promptCapabilities"`
				MCP    map[string]bool `json:"mcpCapabilities"`
			} `json:"agentCapabilities"`
		}
		natstest.Eventually(t, patience, "the agent has been asked", func() (bool, any) {
			can = decode[struct {
				Agent struct {
					Prompt map[string]bool `json:"promptCapabilities"`
					MCP    map[string]bool `json:"mcpCapabilities"`
				} `json:"agentCapabilities"`
			}](newClient(t, f.dial(t, transport, 0)).initialize().Result)
			return can.Agent.Prompt["image"], can
		})
		if len(can.Agent.Prompt) != 3 || can.Agent.Prompt["audio"] || can.Agent.Prompt["embeddedContext"] || !can.Agent.MCP["http"] || can.Agent.MCP["sse"] {
			t.Errorf("capabilities %+v", can)
		}
		c := f.client(t, transport)
		image := func(session string) message {
			return c.call("session/prompt", `{"sessionId":`+quoted(session)+`,"prompt":[{"type":"text","text":"see"},{"type":"image","mimeType":"image/png","data":"`+strings.Repeat("QUFB", 1<<20)+`"}]}`)
		}
		session := c.session("")
		from := c.count()
		wantStop(t, image(session), "end_turn")
		if said := textOf(t, c.received(from, -1)); said != fmt.Sprintf("text 0;image %d;", 4<<20) {
			t.Errorf("the agent got %q", said)
		}
		wantFault(t, c.call("session/prompt", `{"sessionId":`+quoted(session)+`,"prompt":[{"type":"audio","mimeType":"audio/wav","data":"QUFB"}]}`), -32602, "raider pictures takes no content of type audio")
		wantFault(t, image(c.session("other")), -32602, "raider other takes no content of type image")
	})
}
