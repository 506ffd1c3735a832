package proof

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"raiderfleet/internal/shim"
)

// raiderMain is an ACP agent that journals what it does: a line at the start of a run,
// one every few milliseconds while it runs, one at its end. Each line is one write to a
// file opened for appending, so that the lines of all processes are in one order.
//
//	s|b|e <boottime ns> <pid> <prompt text>
//
// It is written without our own rpc package, so that a fault there can't hide itself.
// The prompt is "<lane> <tag> <milliseconds|hold> [bytes]": how long it runs, hold until
// the file <journal>.go is there, and how large its updates are beyond their head. What it
// says can be checked for being whole and in order:
//
//	<tag> <pid> <n> <last|-> <bytes> [padding]
func raiderMain(args []string) int {
	journal, err := os.OpenFile(args[0], os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 2
	}
	note := func(kind string, words []string) {
		_, _ = fmt.Fprintf(journal, "%s %d %d %s %s\n", kind, shim.Now(), os.Getpid(), words[0], words[1])
	}
	var out sync.Mutex
	send := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	cancel := make(chan struct{}, 1)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 8<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				SessionID string `json:"sessionId"`
				Prompt    []struct {
					Text string `json:"text"`
				} `json:"prompt"`
			} `json:"params"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			continue
		}
		switch m.Method {
		case "initialize":
			send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}`, m.ID)
		case "session/new":
			send(`{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"inner"}}`, m.ID)
		case "session/cancel":
			select {
			case cancel <- struct{}{}:
			default:
			}
		case "session/prompt":
			words := strings.Fields(m.Params.Prompt[0].Text)
			note("s", words)
			select {
			case <-cancel: // of a turn that is over
			default:
			}
			go func() {
				reason := raiderTurn(args[0]+".go", words, cancel, note, func(text string) {
					send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"inner","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`, text)
				})
				note("e", words)
				send(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":%q}}`, m.ID, reason)
			}()
		default:
			if m.ID != nil {
				send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
			}
		}
	}
	return 0
}

// raiderTurn runs one prompt and returns its stop reason.
func raiderTurn(release string, words []string, cancel <-chan struct{}, note func(string, []string), say func(string)) string {
	ms, err := strconv.Atoi(words[2])
	hold := err != nil
	size := 0
	if len(words) > 3 {
		size, _ = strconv.Atoi(words[3])
	}
	n := 0
	chunk := func(which string) {
		say(fmt.Sprintf("%s %d %d %s %d %s ", words[1], os.Getpid(), n, which, size, strings.Repeat("x", size)))
		n++
	}
	end := time.After(time.Duration(ms) * time.Millisecond)
	if hold {
		end = nil
	}
	beat := time.NewTicker(5 * time.Millisecond)
	defer beat.Stop()
	for i := 0; ; i++ {
		select {
		case <-beat.C:
			note("b", words)
			if i%4 == 0 {
				chunk("-")
			}
			if hold && i%10 == 0 {
				if _, err := os.Stat(release); err == nil {
					chunk("last")
					return "end_turn"
				}
			}
		case <-cancel:
			return "cancelled"
		case <-end:
			chunk("last")
			return "end_turn"
		}
	}
}
