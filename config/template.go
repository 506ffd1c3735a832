package config

import (
	"fmt"
	"strings"
)

// Template is a fleet.yml to begin with: every key with what it is for, commented out with
// its default or an example, and one raider that needs no model. It loads as it is.
func Template() string {
	var b strings.Builder
	b.WriteString(`# The configuration of a fleet. 'raiderfleet config check' says what it means.
# Take the '#' off a line that begins with it to set its key, and off that of its section.
# Times are 5s, 2m or 1h30m, sizes 512KiB, 32MiB or 1GiB. docs/config.md has the rest.

`)
	section := ""
	for _, k := range keys() {
		name, in := k.path, ""
		if i := strings.LastIndexByte(k.path, '.'); i >= 0 {
			in, name = k.path[:i], k.path[i+1:]
		}
		if in != section {
			writeSection(&b, section, in)
			section = in
		}
		indent := strings.Repeat("  ", depth(in))
		fmt.Fprintf(&b, "%s# %s\n", indent, sentence(k.about, k.defaultText()))
		fmt.Fprintf(&b, "#%s%s: %s\n", indent, name, example(k.path, k.def))
	}
	b.WriteString(raidersTemplate)
	return b.String()
}

func depth(section string) int {
	if section == "" {
		return 0
	}
	return 1 + strings.Count(section, ".")
}

// writeSection writes the lines that open the sections of to which from is not in.
func writeSection(b *strings.Builder, from, to string) {
	b.WriteByte('\n')
	path := ""
	for i, word := range strings.Split(to, ".") {
		path = strings.TrimPrefix(path+"."+word, ".")
		if word != "" && path != from && !strings.HasPrefix(from, path+".") {
			fmt.Fprintf(b, "#%s%s:\n", strings.Repeat("  ", i), word)
		}
	}
}

func sentence(about, def string) string {
	if def == "" {
		return about
	}
	return about + ". Default: " + def
}

// example is a value for a key that has no default that could be written down.
func example(path, def string) string {
	switch path {
	case "nats.urls":
		return "[nats://127.0.0.1:4222]"
	case "nats.credentials_file":
		return "fleet.creds"
	case "nats.tls.ca":
		return "ca.pem"
	case "nats.tls.cert":
		return "cert.pem"
	case "nats.tls.key":
		return "key.pem"
	case "state_dir":
		return "/var/lib/raiderfleet"
	case "worker.name":
		return "worker-1"
	case "worker.capacity":
		return "4"
	case "worker.max_warm":
		return "16"
	case "worker.raiders":
		return "[demo]"
	}
	return def
}

const raidersTemplate = `
# The agents, the default one first. docs/config.md has all their keys, docs/permissions.md
# the rules.
raiders:
  # Built in, without a model: try 'raiderfleet prompt --dev "echo hello"'.
  - name: demo
    kind: demo
    description: says what you tell it to

  # An agent that speaks ACP on stdio.
  #- name: bjorn
  #  command: [my-agent, --acp]
  #  pass_env: [MY_AGENT_KEY]
  #  permissions:
  #    mode: default
  #    allow: [read, "edit(src/**)", "execute(git status*)", "fetch(https://example.org/*)"]
  #    deny: ["edit(**/.env)", "execute(rm *)"]

  # The hall's own raider: the program raider must be there.
  #- name: lagertha
  #  kind: stream
  #  engine: anthropic
  #  persona: polite
  #  packs: [testing-fu]

  # A command that is run for each prompt and writes JSON Lines.
  #- name: freya
  #  kind: stream
  #  command: [my-script, "--session={session}", --, "{prompt}"]
`
