package config

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	// hallFileName is the configuration of a hall of Langertha::Raider. It is read as it is:
	// keys that mean nothing here are named in a warning, and a key without a value is as
	// one that isn't there.
	hallFileName = ".raider-hall.yml"
	// hallPort is where the front door listens when a hall's file only has acp.host.
	hallPort = "38421"
	// hallRaiderName is what the raider of a hall's file is called that names none.
	hallRaiderName = "raider"
)

// IgnoredKey is a key of a hall's file that means nothing here.
type IgnoredKey struct {
	// Key with its sections: "raiders.bjorn.mcp".
	Key  string
	Line int
}

// Warning names the ignored keys with their lines, in one line. Empty when there are none.
func (c *Config) Warning() string {
	if len(c.Ignored) == 0 {
		return ""
	}
	names := make([]string, len(c.Ignored))
	for i, k := range c.Ignored {
		names[i] = fmt.Sprintf("%s (line %d)", k.Key, k.Line)
	}
	return "without meaning here: " + strings.Join(names, ", ")
}

func isHallFile(path string) bool {
	name := strings.TrimPrefix(filepath.Base(path), ".")
	return name == "raider-hall.yml" || name == "raider-hall.yaml"
}

func (l *loader) ignore(path string, k *yaml.Node) {
	l.c.Ignored = append(l.c.Ignored, IgnoredKey{Key: path, Line: k.Line})
}

// hallAddress is acp.host and acp.port, or the variables over them.
type hallAddress struct {
	host, port     string
	hostAt, portAt Origin
}

// readHallKey reads what only a hall's file has, and keys without a value.
func (l *loader) readHallKey(path string, k, v *yaml.Node, at Origin) bool {
	switch {
	case isNull(v):
	case path == "acp":
		section := resolve(v)
		if section.Kind != yaml.MappingNode {
			l.wrong(at.on(k), path, "must be a mapping of keys to values")
			return true
		}
		l.pairs(section, path, at, func(word string, k, v *yaml.Node) { l.readHallACP(path+"."+word, k, v, at) })
	default:
		return false
	}
	return true
}

func (l *loader) readHallACP(path string, k, v *yaml.Node, at Origin) {
	var to *string
	switch path {
	case "acp.host":
		to, l.acp.hostAt = &l.acp.host, at.on(k)
	case "acp.port":
		to, l.acp.portAt = &l.acp.port, at.on(k)
	default:
		l.ignore(path, k)
		return
	}
	if isNull(v) {
		return
	}
	if problem, _ := decode(to, resolve(v)); problem != "" {
		l.wrong(at.on(v), path, "%s", problem)
	}
}

// readHallEnv reads the hall's own variables and makes frontdoor.listen of the address.
// RAIDERFLEET_FRONTDOOR_LISTEN and --listen still win.
func (l *loader) readHallEnv() {
	if !l.c.Hall {
		return
	}
	const portName, hostName = "RAIDER_HALL_ACP_PORT", "RAIDER_HALL_ACP_HOST"
	a := &l.acp
	_, given := l.c.origins["frontdoor.listen"]
	if s := l.lookup(portName); s != "" {
		a.port, a.portAt, given = s, Origin{Source: SourceEnv, Name: portName}, false
	}
	if s := l.lookup(hostName); s != "" {
		a.host, a.hostAt, given = s, Origin{Source: SourceEnv, Name: hostName}, false
	}
	if given || l.bad["acp.port"] || l.bad["acp.host"] {
		return
	}
	at := a.portAt
	if a.port == "" || a.port == "0" { // 0: a hall doesn't listen; a front door has to
		if a.host == "" {
			return
		}
		a.port, at = hallPort, a.hostAt
	}
	if a.host == "" {
		a.host = "127.0.0.1"
	}
	if problem := checkPort(a.port); problem != "" {
		l.wrong(a.portAt, "acp.port", "%s", problem)
		return
	}
	l.c.FrontDoor.Listen = net.JoinHostPort(a.host, a.port)
	l.given("frontdoor.listen", at)
}

// chooseKind finds the hall's own raiders among those without kind and command: all of a
// hall's file, and in a fleet.yml those with a key that only such a raider has. Elsewhere
// a missing command is a mistake.
func (l *loader) chooseKind(e *raiderEntry) {
	given := func(key string) bool {
		_, ok := l.c.origins[e.label+"."+key]
		return ok || l.bad[e.label+"."+key]
	}
	if given("kind") || given("command") {
		return
	}
	if l.c.Hall || given("engine") || given("model") || given("persona") || given("packs") {
		e.raider.Kind = KindStream
	}
}

// hallPassEnv names what the hall's own raider reads from its environment: a hall hands
// all of its own down. Its engines know their keys under two names each, its web search has
// keys of its own, and what it runs needs the way out: a proxy, an agent for SSH.
func hallPassEnv() []string {
	names := []string{
		"BRAVE_API_KEY", "SERPER_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CSE_ID",
		"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSH_AUTH_SOCK", "PERL5LIB",
	}
	for _, engine := range []string{"ANTHROPIC", "OPENAI", "DEEPSEEK", "GROQ", "MISTRAL", "GEMINI", "MINIMAX", "CEREBRAS", "OPENROUTER", "OLLAMA"} {
		key := engine + "_API_KEY"
		names = append(names, key, "LANGERTHA_"+key)
	}
	return names
}
