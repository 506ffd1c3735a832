package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	ossignal "os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// raiderMain is a scripted ACP agent, written without our own rpc package so that a
// fault there can't hide itself. Its arguments are what it does at the start: "exit",
// "banner", "load" (it can load sessions), "resume" (it can resume them), "embeds" (it takes
// resources), "failfirst F N" (it ends until F has N lines, one for each start), "forgetful"
// (it says that it can load and can't), "modes" (it has modes and a model to choose, and
// forgets both with its process; F of "setnote F" gets what is set) or "stubborn" (only
// SIGKILL ends it). A prompt's text is its script, steps divided by ';':
//
//	note F       append "<pid> <session>" to file F
//	wait F       wait until F exists, or for a cancel, which ends the turn as cancelled
//	deaf F       wait until F exists, whatever is cancelled
//	recall       say the blocks of the prompt that are before the script
//	say T        send T as a chunk; sayenv N: the variable N
//	burst N      send N chunks with the numbers from 0
//	big N        send a chunk of N bytes
//	flood N      send N chunks of floodBytes, each with its number
//	ask          ask for permission and say the outcome
//	asks N       ask N times at once, say each outcome as it comes
//	call M P     send the request M with the params P, say what was answered; {S} in P stands
//	             for the session, {T} for the last terminal
//	stderr T     write T to stderr
//	error T      answer with an error
//	kill         kill -9 itself
//	settings     say what is chosen
//	mode M       choose mode M by itself, and tell
//	commands N   tell of a command N
func raiderMain(args []string) int {
	has := func(arg string) bool {
		return slices.Contains(args, arg)
	}
	if has("exit") {
		_, _ = fmt.Fprintln(os.Stderr, "no licence found")
		return 3
	}
	if i := slices.Index(args, "notepid"); i >= 0 { // notes that it was started
		if f, err := os.OpenFile(args[i+1], os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			_, _ = fmt.Fprintln(f, os.Getpid())
			_ = f.Close()
		}
	}
	if i := slices.Index(args, "failfirst"); i >= 0 {
		text, _ := os.ReadFile(args[i+1])
		_ = os.WriteFile(args[i+1], append(text, "start\n"...), 0o600)
		if n, _ := strconv.Atoi(args[i+2]); strings.Count(string(text), "\n") < n {
			_, _ = fmt.Fprintln(os.Stderr, "the lock is held")
			return 4
		}
	}
	if has("banner") {
		_, _ = fmt.Println("Welcome to the agent\n[not json\n{\"level\":\"info\"}")
	}
	ossignal.Ignore(syscall.SIGINT)
	if has("stubborn") {
		ossignal.Ignore(syscall.SIGTERM)
		defer func() { select {} }()
	}
	a := &agent{cancel: make(chan struct{}, 1), answers: map[string]chan json.RawMessage{}, mode: "work", model: "small"}
	if i := slices.Index(args, "setnote"); i >= 0 {
		a.setNote = args[i+1]
	}
	settings := func() string {
		if !has("modes") {
			return ""
		}
		return "," + a.modes() + "," + a.options()
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 32<<20)
	for in.Scan() {
		var m agentMessage
		if json.Unmarshal(in.Bytes(), &m) != nil || (m.Method == "session/prompt" && len(m.Params.Prompt) == 0) {
			a.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"invalid params"}}`, m.ID)
			continue
		}
		switch m.Method {
		case "":
			a.answer(m)
		case "initialize":
			a.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":%t%s%s}}}`, m.ID, has("load") || has("forgetful"),
				map[bool]string{true: `,"sessionCapabilities":{"resume":{}}`}[has("resume")],
				map[bool]string{true: `,"promptCapabilities":{"embeddedContext":true}`}[has("embeds")])
		case "session/new":
			if has("slownew") { // notes itself in a file, and waits for another
				if f, err := os.Create(args[1]); err == nil {
					_, _ = fmt.Fprintln(f, os.Getpid())
					_ = f.Close()
				}
				a.wait(args[2], nil)
			}
			a.send(`{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"inner-%d"%s}}%s`, m.ID, os.Getpid(), settings(), behindNew(args))
			if has("slownew") {
				_ = os.WriteFile(args[2]+".answered", nil, 0o600)
			}
		case "session/resume":
			if !has("resume") {
				a.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
				continue
			}
			a.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		case "session/load":
			if has("forgetful") {
				a.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"nothing known of it"}}`, m.ID)
				continue
			}
			a.chunk(m.Params.SessionID, "replayed")
			a.send(`{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, strings.TrimPrefix(settings(), ","))
		case "session/set_mode", "session/set_config_option":
			a.set(m)
		case "session/cancel":
			select {
			case a.cancel <- struct{}{}:
			default:
			}
		case "session/prompt":
			select { // a cancel of an earlier turn
			case <-a.cancel:
			default:
			}
			if has("fullpipe") && m.Params.Prompt[0].Text == "last" {
				a.send(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`, m.ID)
				select {} // reads nothing any more
			}
			go a.turn(m)
		default:
			if m.ID != nil {
				a.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
			}
		}
	}
	return 0
}

// behindNew is what an agent with the argument "behindnew" sends in one write with its answer
// to session/new.
func behindNew(args []string) string {
	if !slices.Contains(args, "behindnew") {
		return ""
	}
	update := "\n" + `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"inner","update":%s}}`
	return fmt.Sprintf(update, `{"sessionUpdate":"current_mode_update","currentModeId":"plan"}`) +
		fmt.Sprintf(update, `{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"early"}]}`)
}

type agentMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params struct {
		SessionID string       `json:"sessionId"`
		ModeID    string       `json:"modeId"`
		ConfigID  string       `json:"configId"`
		Value     string       `json:"value"`
		Prompt    []agentBlock `json:"prompt"`
	} `json:"params"`
}

type agentBlock struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Resource struct {
		URI  string `json:"uri"`
		Mime string `json:"mimeType"`
		Text string `json:"text"`
	} `json:"resource"`
}

type agent struct {
	cancel chan struct{}

	mu       sync.Mutex // guards stdout and the rest
	asked    int
	answers  map[string]chan json.RawMessage
	terminal string // the turn's own
	mode     string
	model    string
	setNote  string
}

func (a *agent) modes() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf(`"modes":{"currentModeId":%q,"availableModes":[{"id":"work","name":"W","_meta":{"n":1.0}},{"id":"plan","name":"P"}]}`, a.mode)
}

// options has one that only the large model has.
func (a *agent) options() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	more := ""
	if a.model == "large" {
		more = `,{"id":"deep","name":"Deep","type":"boolean","currentValue":false}`
	}
	return fmt.Sprintf(`"configOptions":[{"id":"model","name":"M","type":"select","currentValue":%q,"options":[{"value":"small","name":"S"},{"value":"large","name":"L"},{"value":"secret","name":"X"}],"new":1e400}%s]`, a.model, more)
}

// set knows every mode and model but "party" and "secret", which it refuses.
func (a *agent) set(m agentMessage) {
	chosen := m.Params.ModeID + m.Params.Value
	if a.setNote != "" {
		if f, err := os.OpenFile(a.setNote, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			_, _ = fmt.Fprintln(f, chosen)
			_ = f.Close()
		}
	}
	if chosen == "party" || chosen == "secret" {
		a.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"not here","data":{"asked":%q,"n":1.0}}}`, m.ID, chosen)
		return
	}
	result := ""
	a.mu.Lock()
	if m.Method == "session/set_mode" {
		a.mode = chosen
	} else if m.Params.ConfigID == "model" {
		a.model = chosen
	}
	a.mu.Unlock()
	if m.Method == "session/set_config_option" {
		result = a.options()
	}
	a.send(`{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, result)
}

func (a *agent) send(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = fmt.Printf(format+"\n", args...)
}

func (a *agent) chunk(session, text string) {
	a.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%s}}}}`, session, quote(text))
}

func (a *agent) answer(m agentMessage) {
	a.mu.Lock()
	c := a.answers[string(m.ID)]
	a.mu.Unlock()
	if c != nil {
		c <- slices.Concat(m.Result, m.Error)
	}
}

func (a *agent) turn(m agentMessage) {
	session, reason := m.Params.SessionID, "end_turn"
	for step := range strings.SplitSeq(m.Params.Prompt[len(m.Params.Prompt)-1].Text, ";") {
		verb, arg, _ := strings.Cut(strings.TrimSpace(step), " ")
		n, _ := strconv.Atoi(arg)
		switch verb {
		case "note":
			f, err := os.OpenFile(arg, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
			if err == nil {
				_, _ = fmt.Fprintf(f, "%d %s\n", os.Getpid(), session)
				_ = f.Close()
			}
		case "wait":
			if a.wait(arg, a.cancel) {
				reason = "cancelled"
			}
		case "deaf":
			a.wait(arg, nil)
		case "say":
			a.chunk(session, arg)
		case "recall": // says what came before the script
			for _, b := range m.Params.Prompt[:len(m.Params.Prompt)-1] {
				a.chunk(session, strings.Join([]string{b.Type, b.Text, b.Resource.URI, b.Resource.Mime, b.Resource.Text}, "|"))
			}
		case "sayenv":
			value, ok := os.LookupEnv(arg)
			a.chunk(session, fmt.Sprintf("%s=%s %t", arg, value, ok))
		case "burst":
			for i := range n {
				a.chunk(session, strconv.Itoa(i))
			}
		case "big":
			a.chunk(session, strings.Repeat("x", n))
		case "flood":
			for i := range n {
				a.chunk(session, floodChunk(i))
			}
		case "ask":
			a.chunk(session, a.ask(session, askRest))
		case "asks":
			var all sync.WaitGroup
			for range n {
				all.Go(func() { a.chunk(session, a.ask(session, askRest)) })
			}
			all.Wait()
		case "run": // asks whether it may run arg
			a.chunk(session, a.ask(session, fmt.Sprintf(
				`"toolCall":{"toolCallId":"t","title":"Run","kind":"execute","rawInput":{"command":%s}},`+
					`"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"a","name":"Always","kind":"allow_always"},{"optionId":"n","name":"No","kind":"reject_once"}]}`, quote(arg))))
		case "call":
			method, params, _ := strings.Cut(arg, " ")
			answer := a.call(method, strings.NewReplacer("{S}", session, "{T}", a.terminal).Replace(params))
			var made struct {
				ID string `json:"terminalId"`
			}
			if json.Unmarshal([]byte(answer), &made) == nil && made.ID != "" {
				a.terminal = made.ID
			}
			a.chunk(session, answer)
		case "stderr":
			_, _ = fmt.Fprintln(os.Stderr, arg)
		case "error":
			a.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%s}}`, m.ID, quote(arg))
			return
		case "behind": // the answer, an update and a question in one write; what came of it in arg
			c := make(chan json.RawMessage, 1)
			a.mu.Lock()
			a.answers[`"late"`] = c
			a.mu.Unlock()
			a.send(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`+"\n"+
				`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"late"}}}}`+"\n"+
				`{"jsonrpc":"2.0","id":"late","method":"session/request_permission","params":{"sessionId":%q,%s}`, m.ID, session, session, askRest)
			_ = os.WriteFile(arg, <-c, 0o600)
			return
		case "settings":
			a.mu.Lock()
			chosen := a.mode + " " + a.model
			a.mu.Unlock()
			a.chunk(session, chosen)
		case "mode":
			a.mu.Lock()
			a.mode = arg
			a.mu.Unlock()
			a.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"current_mode_update","currentModeId":%q}}}`, session, arg)
		case "commands":
			a.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"available_commands_update","availableCommands":[{"name":%q,"description":"d","n":1.0}]}}}`, session, arg)
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if reason != "end_turn" {
			break
		}
	}
	a.send(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":%q}}`, m.ID, reason)
}

// floodBytes is the size of a chunk of a flood.
const floodBytes = 100_000

func floodChunk(i int) string {
	return fmt.Sprintf("<%d>", i) + strings.Repeat("x", floodBytes-len(strconv.Itoa(i))-2)
}

// wait returns true when it was ended by cancel.
func (a *agent) wait(file string, cancel <-chan struct{}) bool {
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		select {
		case <-look.C:
		case <-cancel:
			return true
		}
	}
}

// askRest is what follows in an ask's params: also what the fleet knows nothing of.
const askRest = `"toolCall":{"toolCallId":"t1","title":"Run make","kind":"execute","status":"pending","rawInput":{"n":1.50},"content":[{"type":"content","content":{"type":"text","text":"why"}}],"new":null},` +
	`"options":[{"optionId":"yes","name":"Yes","kind":"allow_once","_meta":{"a":1e2}},{"optionId":"never","name":"Never","kind":"reject_always"},{"optionId":"no","name":"No","kind":"reject_once"}],"_meta":{"x":[]}}`

// ask returns the outcome that it was told.
func (a *agent) ask(session, rest string) string {
	return a.call("session/request_permission", fmt.Sprintf(`{"sessionId":%q,%s`, session, rest))
}

// call sends a request and returns its result or error.
func (a *agent) call(method, params string) string {
	a.mu.Lock()
	a.asked++
	id := fmt.Sprintf(`"ask%d"`, a.asked)
	c := make(chan json.RawMessage, 1)
	a.answers[id] = c
	a.mu.Unlock()
	a.send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
	return string(<-c)
}
