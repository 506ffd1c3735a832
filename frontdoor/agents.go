package frontdoor

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"raiderfleet/subjects"
)

const (
	// agentsFresh is how old what is known of agents may be when a client asks.
	agentsFresh = time.Second
	// agentsFirst is how long a client's initialize waits when nothing is known yet.
	agentsFirst = 300 * time.Millisecond
	// agentsFor is how long a prompt waits for a worker to tell what its raider takes, and
	// agentsEvery is how often is looked.
	agentsFor   = 3 * time.Second
	agentsEvery = 200 * time.Millisecond
)

// agents are what the workers tell of their raiders' agents.
type agents struct {
	reading sync.Mutex // held while they are read

	mu    sync.Mutex // guards the rest
	at    time.Time
	known map[subjects.Raider][]subjects.Agent // of each worker that serves it and has asked it
}

// refresh reads what workers tell, unless it was read a moment ago.
func (f *FrontDoor) refresh(ctx context.Context) {
	f.agents.reading.Lock()
	defer f.agents.reading.Unlock()
	f.agents.mu.Lock()
	fresh := time.Since(f.agents.at) < agentsFresh
	f.agents.mu.Unlock()
	if fresh {
		return
	}
	ctx, cancel := f.b.Bound(ctx, 0)
	defer cancel()
	records, err := f.b.List(ctx, f.fleet.NodesBucket(), "")
	if err != nil {
		f.log.Debug("the workers' agents can't be read", "error", err)
		return // what was known before holds
	}
	known := map[subjects.Raider][]subjects.Agent{}
	for _, r := range records {
		var n subjects.Node
		if json.Unmarshal(r.Value, &n) != nil || n.Role != subjects.RoleWorker || n.State == subjects.NodeGoodbye {
			continue
		}
		for name, a := range n.Agents {
			known[name] = append(known[name], a)
		}
	}
	f.agents.mu.Lock()
	defer f.agents.mu.Unlock()
	f.agents.at, f.agents.known = time.Now(), known
}

// agentCan is a part of ACP's agentCapabilities.
type agentCan struct {
	Prompt PromptCapabilities `json:"promptCapabilities"`
	MCP    mcpCapabilities    `json:"mcpCapabilities"`
}

// can is what a raider can do at all of its workers, beside what the configuration says.
// known is false when no worker has told.
func (f *FrontDoor) can(name subjects.Raider) (can agentCan, known bool) {
	f.agents.mu.Lock()
	told := slices.Clone(f.agents.known[name])
	f.agents.mu.Unlock()
	can = agentCan{PromptCapabilities{true, true, true}, mcpCapabilities{true, true}}
	for _, a := range told {
		var one agentCan
		_ = json.Unmarshal(a.Capabilities, &one) // what can't be read can nothing
		can.Prompt.Image = can.Prompt.Image && one.Prompt.Image
		can.Prompt.Audio = can.Prompt.Audio && one.Prompt.Audio
		can.Prompt.EmbeddedContext = can.Prompt.EmbeddedContext && one.Prompt.EmbeddedContext
		can.MCP.HTTP, can.MCP.SSE = can.MCP.HTTP && one.MCP.HTTP, can.MCP.SSE && one.MCP.SSE
	}
	if known = len(told) > 0; !known {
		can = agentCan{}
	}
	said := f.raiders[name].Prompt
	can.Prompt.Image = can.Prompt.Image || said.Image
	can.Prompt.Audio = can.Prompt.Audio || said.Audio
	can.Prompt.EmbeddedContext = can.Prompt.EmbeddedContext || said.EmbeddedContext
	return can, known
}

// firstAgents waits a moment for the first answer of the workers.
func (f *FrontDoor) firstAgents(ctx context.Context) {
	f.agents.mu.Lock()
	first := f.agents.at.IsZero()
	f.agents.mu.Unlock()
	if !first {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, agentsFirst)
	defer cancel()
	f.refresh(ctx)
}

// takes says whether a raider takes all that a prompt has. It waits for a worker to tell
// where only that can say so.
func (f *FrontDoor) takes(ctx context.Context, name subjects.Raider, types []string) error {
	end := time.Now().Add(agentsFor)
	for {
		if can, _ := f.can(name); can.Prompt.takes(name, types) == nil {
			return nil
		}
		f.refresh(ctx)
		can, known := f.can(name)
		err := can.Prompt.takes(name, types)
		if err == nil {
			return nil
		}
		if known || time.Now().After(end) || !sleep(ctx, agentsEvery) {
			return err
		}
	}
}
