package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"raiderfleet/internal/policy"
	"raiderfleet/internal/rawjson"
	"raiderfleet/internal/rpc"
	"raiderfleet/internal/shim"
)

const (
	// maxHostFile bounds what is read from a file for a raider, in bytes.
	maxHostFile = 16 << 20
	// maxHostOutput bounds what is kept of a terminal's output, in bytes.
	maxHostOutput = 1 << 20
	// maxHostTerminals bounds the terminals that a raider has not released.
	maxHostTerminals = 32
	// codeNotFound is ACP's 'resource not found'.
	codeNotFound = -32002
)

// host serves files and terminals to a raider at its own worker, instead of a client.
type host struct {
	mu        sync.Mutex // guards the rest
	terminals map[string]*terminal
	last      int
	deadline  shim.Boottime
	ended     bool
}

// terminal is a command that a raider has started.
type terminal struct {
	sp    *shim.Process
	limit int
	drain sync.WaitGroup

	mu  sync.Mutex // guards the rest
	out []byte     // the newest of the output
	cut bool       // something older was left out
}

// serves says whether the worker answers a method of this raider's.
func (r *Raider) serves(method string) bool {
	return r.ClientMethods == ClientMethodsWorker && (strings.HasPrefix(method, "fs/") || strings.HasPrefix(method, "terminal/"))
}

func invalid(format string, args ...any) *rpc.Error {
	return &rpc.Error{Code: rpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// serveHost answers a request for a file or a terminal. ctx ends when the raider takes it
// back or has ended.
func (p *process) serveHost(ctx context.Context, method string, params json.RawMessage) (any, *rpc.Error) {
	switch method {
	case "fs/read_text_file":
		return p.hostRead(params)
	case "fs/write_text_file":
		return p.hostWrite(params)
	case "terminal/create":
		return p.hostTerminal(ctx, params)
	}
	t := p.host.find(member(params, "terminalId"))
	if t == nil {
		return nil, invalid("no such terminal")
	}
	switch method {
	case "terminal/output":
		return t.output(), nil
	case "terminal/wait_for_exit":
		select {
		case <-t.sp.Gone():
			return t.exit(), nil
		case <-ctx.Done():
			return nil, &rpc.Error{Code: rpc.CodeRequestCancelled, Message: "request cancelled"}
		}
	case "terminal/kill":
		t.sp.Kill()
		return struct{}{}, nil
	case "terminal/release":
		p.host.release(member(params, "terminalId"))
		return struct{}{}, nil
	}
	return nil, &rpc.Error{Code: rpc.CodeMethodNotFound, Message: "method not found: " + method}
}

// mayHost refuses what the raider's policy denies. What it would ask about is the raider's
// to ask for, as everything that it does itself.
func (p *process) mayHost(c policy.Call) *rpc.Error {
	rules := p.l.raider.Policy
	if rules == nil {
		return nil
	}
	if d := rules.Decide(c, p.scope()); d.Verdict == policy.Deny {
		return &rpc.Error{Code: rpc.CodeInternal, Message: "refused: " + d.Reason}
	}
	return nil
}

// roots are the session's directories.
func (p *process) roots() []string {
	return append([]string{p.dir}, p.meta.AdditionalDirectories...)
}

// inRoot finds the root that an absolute path is in, and the path from there.
func (p *process) inRoot(path string) (*os.Root, string, *rpc.Error) {
	if !filepath.IsAbs(path) {
		return nil, "", invalid("path must be absolute")
	}
	path = filepath.Clean(path)
	for _, root := range p.roots() {
		names := []string{root}
		if behind, err := filepath.EvalSymlinks(root); err == nil && behind != root {
			names = append(names, behind)
		}
		for _, name := range names {
			rel, err := filepath.Rel(name, path)
			if err != nil || !filepath.IsLocal(rel) {
				continue
			}
			// Whatever links there are in it, nothing outside of the root is opened.
			dir, err := os.OpenRoot(root)
			if err != nil {
				return nil, "", fileError(err)
			}
			return dir, rel, nil
		}
	}
	return nil, "", invalid("path is in none of the session's directories")
}

// fileError tells what is wrong with a file, without the worker's view of its path.
func fileError(err error) *rpc.Error {
	if errors.Is(err, fs.ErrNotExist) {
		return &rpc.Error{Code: codeNotFound, Message: "file not found"}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return &rpc.Error{Code: rpc.CodeInternal, Message: safeText(err)}
}

func (p *process) hostRead(params json.RawMessage) (any, *rpc.Error) {
	var in struct {
		Path  string  `json:"path"`
		Line  *uint32 `json:"line"`
		Limit *uint32 `json:"limit"`
	}
	if json.Unmarshal(params, &in) != nil {
		return nil, invalid("path must be a string, line and limit numbers from 0")
	}
	if fault := p.mayHost(policy.Call{Kind: "read", Paths: []string{in.Path}}); fault != nil {
		return nil, fault
	}
	root, rel, fault := p.inRoot(in.Path)
	if fault != nil {
		return nil, fault
	}
	defer func() { _ = root.Close() }()
	// A pipe or a terminal would be waited for.
	info, err := root.Stat(rel)
	if err != nil {
		return nil, fileError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, invalid("path is no regular file")
	}
	f, err := root.Open(rel)
	if err != nil {
		return nil, fileError(err)
	}
	defer func() { _ = f.Close() }()
	text, err := lines(f, in.Line, in.Limit)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, invalid("the file has more than %d bytes where it is to be read: use line and limit", maxHostFile)
	case err != nil:
		return nil, fileError(err)
	case !utf8.ValidString(text):
		return nil, invalid("the file is no text in UTF-8")
	}
	return map[string]string{"content": text}, nil
}

var errTooLarge = errors.New("too large")

// lines reads limit lines from line on, which counts from 1; nil means the first, and all.
func lines(r io.Reader, line, limit *uint32) (string, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	first, count := uint32(1), ^uint32(0)
	if line != nil && *line > 1 {
		first = *line
	}
	if limit != nil {
		count = *limit
	}
	var out strings.Builder
	for at := uint32(1); count > 0; {
		part, err := in.ReadSlice('\n')
		if at >= first {
			if out.Len()+len(part) > maxHostFile {
				return "", errTooLarge
			}
			out.Write(part)
		}
		switch {
		case errors.Is(err, io.EOF):
			return out.String(), nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue // in the midst of a line
		case err != nil:
			return "", fmt.Errorf("read: %w", err)
		}
		if at >= first {
			count--
		}
		at++
	}
	return out.String(), nil
}

func (p *process) hostWrite(params json.RawMessage) (any, *rpc.Error) {
	var in struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
	}
	if json.Unmarshal(params, &in) != nil || in.Content == nil {
		return nil, invalid("path and content must be strings")
	}
	if fault := p.mayHost(policy.Call{Kind: "edit", Paths: []string{in.Path}}); fault != nil {
		return nil, fault
	}
	root, rel, fault := p.inRoot(in.Path)
	if fault != nil {
		return nil, fault
	}
	defer func() { _ = root.Close() }()
	if info, err := root.Stat(rel); err == nil && !info.Mode().IsRegular() {
		return nil, invalid("path is no regular file")
	}
	if err := root.MkdirAll(filepath.Dir(rel), 0o777); err != nil {
		return nil, fileError(err)
	}
	if err := root.WriteFile(rel, []byte(*in.Content), 0o666); err != nil {
		return nil, fileError(err)
	}
	return struct{}{}, nil
}

func (p *process) hostTerminal(ctx context.Context, params json.RawMessage) (any, *rpc.Error) {
	var in struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Env     []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"env"`
		Cwd   string `json:"cwd"`
		Limit *int   `json:"outputByteLimit"`
	}
	if json.Unmarshal(params, &in) != nil || in.Command == "" {
		return nil, invalid("command must be a string that isn't empty, args strings, env a list of names and values, cwd a path, outputByteLimit a number")
	}
	call := policy.Call{Kind: "execute", Dir: in.Cwd}
	argv := append([]string{in.Command}, in.Args...)
	if len(in.Args) == 0 {
		// Agents send a whole line of the shell without arguments.
		argv = []string{"/bin/sh", "-c", in.Command}
		call.Commands = []string{in.Command}
	} else {
		call.Argv = argv
	}
	if fault := p.mayHost(call); fault != nil {
		return nil, fault
	}
	dir := p.dir
	if in.Cwd != "" {
		root, rel, fault := p.inRoot(in.Cwd)
		if fault != nil {
			return nil, fault
		}
		info, err := root.Stat(rel)
		_ = root.Close()
		if err != nil || !info.IsDir() {
			return nil, invalid("cwd is no directory")
		}
		dir = in.Cwd
	}
	env := p.l.raider.environment()
	for _, e := range in.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") || strings.Contains(e.Value, "\x00") {
			return nil, invalid("env has a name or a value that is none")
		}
		env = append(env, e.Name+"="+e.Value)
	}
	t := &terminal{limit: maxHostOutput}
	if in.Limit != nil {
		t.limit = max(0, min(*in.Limit, maxHostOutput))
	}
	id, err := p.host.start(t, func(deadline shim.Boottime) (*shim.Process, error) {
		return shim.Start(ctx, shim.Spec{
			Exe: p.l.w.c.Exe, Command: argv, Dir: dir, Env: env, Deadline: deadline, Hold: p.l.w.lock.file, Pool: p.l.w.shims,
		})
	})
	if err != nil {
		return nil, &rpc.Error{Code: rpc.CodeInternal, Message: p.l.redact(safeText(err))}
	}
	_ = t.sp.Stdin().Close()
	return map[string]string{"terminalId": id}, nil
}

// start starts a terminal's command, unless there are too many or the raider ends. The
// lock isn't held meanwhile: who renews the lease waits for it.
func (h *host) start(t *terminal, command func(shim.Boottime) (*shim.Process, error)) (string, error) {
	h.mu.Lock()
	if len(h.terminals) >= maxHostTerminals {
		h.mu.Unlock()
		return "", fmt.Errorf("%d terminals are open: release one", maxHostTerminals)
	}
	if h.terminals == nil {
		h.terminals = map[string]*terminal{}
	}
	h.last++
	id := fmt.Sprintf("term-%d", h.last)
	h.terminals[id] = nil // its place
	deadline := h.deadline
	h.mu.Unlock()

	sp, err := command(deadline)
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.terminals, id)
		return "", err
	}
	t.sp = sp
	for _, r := range []io.ReadCloser{sp.Stdout(), sp.Stderr()} {
		t.drain.Go(func() {
			defer func() { _ = r.Close() }()
			_, _ = io.Copy(t, r) // until its end
		})
	}
	h.mu.Lock()
	ended := h.ended
	if ended {
		delete(h.terminals, id)
	} else {
		h.terminals[id] = t
		_ = sp.SetDeadline(h.deadline) // it may have been moved in between
	}
	h.mu.Unlock()
	if ended {
		t.end()
		return "", errors.New("the raider ends")
	}
	return id, nil
}

// end kills the command and returns when its tree is gone.
func (t *terminal) end() {
	t.sp.Kill()
	<-t.sp.Gone()
	t.drain.Wait()
}

func (h *host) find(id string) *terminal {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terminals[id]
}

// release kills a terminal's command and forgets it; it returns when its tree is gone.
func (h *host) release(id string) {
	h.mu.Lock()
	t := h.terminals[id]
	h.mu.Unlock()
	if t == nil {
		return
	}
	t.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.terminals, id)
}

// open are the terminals whose command was started.
func (h *host) open() []*terminal {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*terminal
	for _, t := range h.terminals {
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

// setDeadline moves the deadline of what runs, and of what will.
func (h *host) setDeadline(d shim.Boottime) {
	h.mu.Lock()
	h.deadline = d
	h.mu.Unlock()
	for _, t := range h.open() {
		_ = t.sp.SetDeadline(d) // it may have ended
	}
}

// kill kills what runs, without waiting; what is just being started goes, too.
func (h *host) kill() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	for _, t := range h.open() {
		t.sp.Kill()
	}
}

// end kills what runs and returns when it is gone.
func (h *host) end() {
	h.kill()
	for _, t := range h.open() {
		t.end()
	}
}

// Write takes output of the command.
func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = append(t.out, b...)
	if over := len(t.out) - t.limit; over > 0 {
		t.out, t.cut = append(t.out[:0], t.out[over:]...), true
	}
	return len(b), nil
}

// output is the answer to terminal/output.
func (t *terminal) output() any {
	out := struct {
		Output    string `json:"output"`
		Truncated bool   `json:"truncated"`
		Exit      any    `json:"exitStatus,omitempty"`
	}{}
	select {
	case <-t.sp.Gone():
		out.Exit = t.exit()
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.out
	for t.cut && len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	out.Output, out.Truncated = strings.ToValidUTF8(string(text), "\uFFFD"), t.cut
	return out
}

// exit is how the command ended; its output is complete then.
func (t *terminal) exit() any {
	t.drain.Wait()
	e := t.sp.Exit()
	var out struct {
		Code   *int    `json:"exitCode"`
		Signal *string `json:"signal"`
	}
	if e.Signal != 0 {
		name := signalName(e.Signal)
		out.Signal = &name
	} else {
		out.Code = &e.Code
	}
	return out
}

func signalName(s syscall.Signal) string {
	for name, have := range map[string]syscall.Signal{
		"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT, "SIGILL": syscall.SIGILL, "SIGABRT": syscall.SIGABRT,
		"SIGFPE": syscall.SIGFPE, "SIGKILL": syscall.SIGKILL, "SIGSEGV": syscall.SIGSEGV, "SIGPIPE": syscall.SIGPIPE, "SIGALRM": syscall.SIGALRM,
		"SIGTERM": syscall.SIGTERM, "SIGBUS": syscall.SIGBUS,
	} {
		if have == s {
			return name
		}
	}
	return s.String()
}

// hostCapabilities adds to what a client can do what the worker does itself.
func hostCapabilities(told json.RawMessage) json.RawMessage {
	for key, value := range map[string]string{"fs": `{"readTextFile":true,"writeTextFile":true}`, "terminal": "true"} {
		if with, err := rawjson.Set(told, key, json.RawMessage(value)); err == nil {
			told = with
		}
	}
	return told
}
