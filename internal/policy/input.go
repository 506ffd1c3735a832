package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// inputDepth bounds lists of edits in the input.
const inputDepth = 3

// input takes commands, paths and URLs out of a tool's raw input. Agents name them
// differently; every name that is known counts, so that none can hide another.
func (p *callParser) input(raw json.RawMessage) {
	if empty(raw) {
		return
	}
	var line string
	if json.Unmarshal(raw, &line) == nil {
		if p.c.Kind == kindExecute {
			p.c.Commands = append(p.c.Commands, line)
		} else if line != "" {
			p.c.opaqueInput = true
		}
		return
	}
	fields, twice, err := object(raw)
	if err != nil {
		p.doubt("the input is neither an object nor a text")
		return
	}
	if twice != "" {
		p.doubt("the key " + twice + " is there twice in the input")
	}
	p.c.opaqueInput = len(fields) > 0
	p.command(fields)
	p.environment(fields)
	p.walk(fields, 0)
}

// command takes what the call runs.
func (p *callParser) command(fields map[string]json.RawMessage) {
	for _, name := range []string{"command", "cmd", "commandLine", "command_line", "shell_command", "shellCommand", "script", "argv"} {
		raw := fields[name]
		if empty(raw) {
			continue
		}
		var text string
		var argv []string
		switch {
		case json.Unmarshal(raw, &text) == nil:
			if args := fields["args"]; !empty(args) {
				var rest []string
				if json.Unmarshal(args, &rest) != nil {
					p.doubt("args is no list of texts")
				}
				if len(rest) > 0 {
					p.argv(append([]string{text}, rest...))
					continue
				}
			}
			p.c.Commands = append(p.c.Commands, text)
		case json.Unmarshal(raw, &argv) == nil && len(argv) > 0:
			p.argv(argv)
		default:
			p.doubt(name + " is neither a text nor a list of texts")
		}
	}
	for _, name := range []string{"cwd", "workdir", "working_directory", "workingDirectory", "directory", "dir_path"} {
		if p.c.executes() && !empty(fields[name]) {
			dir := p.text(fields, name)
			if p.c.Dir != "" && dir != p.c.Dir {
				p.doubt("there are two working directories")
			}
			p.c.Dir = dir
		}
	}
}

func (p *callParser) argv(argv []string) {
	if p.c.Argv != nil {
		p.doubt("there are two commands")
		p.c.Argv = append(p.c.Argv, argv...)
		return
	}
	p.c.Argv = argv
}

// environment: variables such as PATH change what a command is.
func (p *callParser) environment(fields map[string]json.RawMessage) {
	for _, name := range []string{"env", "environment"} {
		switch strings.Join(strings.Fields(string(fields[name])), "") {
		case "", "null", "{}", "[]":
		default:
			if p.c.executes() {
				p.doubt("the call sets variables of the environment")
			}
		}
	}
}

// walk takes paths and URLs, in lists of edits too.
func (p *callParser) walk(fields map[string]json.RawMessage, depth int) {
	// Sorted: what a rule is made from must not change from call to call.
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		switch name {
		case "path", "paths", "file", "files", "file_path", "filePath", "file_paths", "filename", "fileName", "filepath",
			"absolute_path", "absolutePath", "abs_path", "notebook_path", "notebookPath", "target_file", "targetFile",
			"dir", "dir_path", "folder", "source", "destination", "src", "dst", "from", "to", "old_path", "new_path",
			"oldPath", "newPath", "source_path", "destination_path", "move_path", "output_path", "root":
			if depth == 0 && p.c.executes() && name != "path" && name != "file_path" {
				continue // of a command they may be anything
			}
			p.texts(raw, name, p.addPath, depth)
		case "url", "urls", "href", "endpoint", "link":
			p.texts(raw, name, p.addURL, depth)
		case "uri", "uris":
			p.texts(raw, name, func(s string) {
				if strings.HasPrefix(s, "file:") {
					p.addPath(s)
				} else {
					p.addURL(s)
				}
			}, depth)
		case "changes":
			// Codex: a mapping by file.
			if changed, twice, err := object(raw); err == nil {
				if twice != "" {
					p.doubt("a file is there twice in the changes")
				}
				for _, file := range slices.Sorted(maps.Keys(changed)) {
					p.addPath(file)
					if inner, _, err := object(changed[file]); err == nil && depth < inputDepth {
						p.walk(inner, depth+1)
					}
				}
				continue
			}
			p.nested(raw, depth)
		case "edits", "operations", "requests", "update":
			p.nested(raw, depth)
		}
	}
}

// texts calls add for a text or a list of them.
func (p *callParser) texts(raw json.RawMessage, name string, add func(string), depth int) {
	if empty(raw) {
		return
	}
	var one string
	var many []string
	switch {
	case json.Unmarshal(raw, &one) == nil:
		if one != "" {
			add(one)
		}
	case json.Unmarshal(raw, &many) == nil:
		for _, s := range many {
			add(s)
		}
	default:
		p.nested(raw, depth)
		p.doubt(name + " is neither a text nor a list of texts")
	}
}

// nested walks an object, or a list of objects.
func (p *callParser) nested(raw json.RawMessage, depth int) {
	if depth >= inputDepth {
		p.doubt("the input is too deep")
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	for _, item := range list {
		if inner, twice, err := object(item); err == nil {
			if twice != "" {
				p.doubt("the key " + twice + " is there twice in the input")
			}
			p.walk(inner, depth+1)
		}
	}
}
