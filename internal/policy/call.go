package policy

// Call is a tool call, as far as rules can be about it. ParseCall makes one from what an
// agent sends; the zero Call is one of which nothing is known.
type Call struct {
	// Kind is the tool's kind in ACP, in lower case. Empty when the agent gave none.
	Kind string
	// Tool is the tool's name where the agent gives one. It is never taken from the
	// input, which a model writes.
	Tool string
	// Title is the line for people. It counts only where nothing better is known.
	Title string
	// Commands are shell lines, Argv a command that is started without a shell. A call
	// with either is one that executes, whatever its kind says.
	Commands []string
	Argv     []string
	// Dir is the directory that the command runs in, if the call names one.
	Dir string
	// Paths are the files that the call is about, as the agent wrote them.
	Paths []string
	// URLs are the addresses that the call is about.
	URLs []string
	// Doubt says why no rule may allow the call: its parts contradict each other, or
	// something in it isn't understood. Empty when there is none.
	Doubt string
	// opaqueInput: there is an input that the call's parts don't show.
	opaqueInput bool
}

// executes says whether the call runs a command.
func (c *Call) executes() bool {
	return c.Kind == kindExecute || len(c.Commands) > 0 || len(c.Argv) > 0
}

// kind is what the call counts as for rules and modes.
func (c *Call) kind() string {
	if c.executes() {
		return kindExecute
	}
	return c.Kind
}

// unseen says whether the call runs something that isn't a command line: code, or a tool
// with arguments of its own. Its title may be anything.
func (c *Call) unseen() bool {
	return c.Kind == kindExecute && len(c.Commands) == 0 && len(c.Argv) == 0 && c.opaqueInput
}

// lines parses the command lines. Where an agent gives only a title, that is the command.
func (c *Call) lines() []*line {
	var out []*line
	for _, text := range c.Commands {
		out = append(out, parseLine(text))
	}
	if len(c.Argv) > 0 {
		out = append(out, argvLine(c.Argv))
	}
	if len(out) == 0 && !c.unseen() {
		out = append(out, parseLine(titleCommand(c.Title)))
	}
	return out
}

// titleCommand takes off the backquotes that some agents put around a command.
func titleCommand(title string) string {
	if n := len(title); n > 2 && title[0] == '`' && title[n-1] == '`' {
		inner := title[1 : n-1]
		for i := range len(inner) {
			if inner[i] == '`' {
				return title
			}
		}
		return inner
	}
	return title
}
