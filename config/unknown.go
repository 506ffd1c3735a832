package config

import (
	"slices"
	"strings"
)

// envPrefix begins the names of all our variables.
const envPrefix = "RAIDERFLEET_"

// otherVariables are read, but set no key.
func otherVariables() []string {
	return []string{
		"RAIDERFLEET_NATS_USER", "RAIDERFLEET_NATS_PASSWORD", // sign in to NATS
		"RAIDERFLEET_DEMO_STATE", "RAIDERFLEET_DEMO_JOURNAL", // the demo raider's
		// Of stream raiders; the second one is there for a raider that runs our commands.
		"RAIDERFLEET_RAIDER_BIN", "RAIDERFLEET_PERMISSION_SOCKET",
		"RAIDERFLEET_ACP_SCHEMA", "RAIDERFLEET_CI_TOOLS", "RAIDERFLEET_PROOF_KEEP", // of tests and CI
	}
}

// lookForUnknown warns of variables that look like ours and that nothing reads, in one
// line: a typing mistake in one of them would go unseen.
func (l *loader) lookForUnknown() {
	known := otherVariables()
	for _, k := range keys() {
		known = append(known, k.envName())
	}
	var unknown []string
	for _, v := range l.o.Environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, envPrefix+"TEST_") || slices.Contains(known, name) {
			continue
		}
		unknown = append(unknown, name+suggestVariable(name, known))
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		l.c.warnings = append(l.c.warnings, "nothing reads these variables: "+strings.Join(unknown, ", "))
	}
}

// suggestVariable is suggest without what all names begin with.
func suggestVariable(name string, known []string) string {
	short := make([]string, len(known))
	for i, k := range known {
		short[i] = strings.ToLower(strings.TrimPrefix(k, envPrefix))
	}
	guess := suggest(strings.TrimPrefix(name, envPrefix), short)
	if guess == "" {
		return ""
	}
	guess = strings.TrimSuffix(strings.TrimPrefix(guess, "; did you mean "), "?")
	return " (did you mean " + envPrefix + strings.ToUpper(guess) + "?)"
}
