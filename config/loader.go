package config

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"raiderfleet/internal/policy"
)

// loader holds what one Load has found so far.
type loader struct {
	o   Options
	dir string
	env func(string) (string, bool)

	c        *Config
	problems Problems
	// bad holds the keys that have a problem already: they get the default, and no
	// second complaint.
	bad     map[string]bool
	raiders []*raiderEntry
	// lines holds the line of each entry of a list, by the list's key.
	lines map[string][]int
	// acp is the address in a hall's file or its variables.
	acp hallAddress
	// raidersBad says that raiders: could not be read, so nothing is said about names
	// that seem to be missing.
	raidersBad bool
}

// raiderEntry is a raider and the keys that were given for it.
type raiderEntry struct {
	raider Raider
	// label is the path that the user is told: "raiders.bjorn", or "raiders[1]" for one
	// whose name can't be used.
	label string
}

func newLoader(o Options) *loader {
	l := &loader{o: o, dir: o.Dir, env: o.Env, bad: map[string]bool{}, lines: map[string][]int{}}
	if l.env == nil {
		l.env = os.LookupEnv
		if o.Environ == nil {
			l.o.Environ = os.Environ()
		}
	}
	if dir, err := filepath.Abs(l.dir); err == nil {
		l.dir = dir
	}
	l.c = &Config{origins: map[string]Origin{}}
	return l
}

func (l *loader) wrong(at Origin, path, format string, args ...any) {
	l.bad[path] = true
	l.problems.add(at, path, format, args...)
}

// lookup is an environment variable that is set to something.
func (l *loader) lookup(name string) string {
	if s, ok := l.env(name); ok {
		return s
	}
	return ""
}

// given notes that a key was read well.
func (l *loader) given(path string, at Origin) {
	l.c.origins[path] = at
	delete(l.bad, path)
}

// absolute makes a path absolute: relative to the file that it is written in, else to
// the working directory.
func (l *loader) absolute(field any, at Origin) string {
	s, ok := field.(*string)
	if !ok || *s == "" {
		return ""
	}
	if *s == "~" || strings.HasPrefix(*s, "~/") {
		return "'~' is not expanded: write the whole path"
	}
	if !filepath.IsAbs(*s) {
		base := l.dir
		if at.Source == SourceFile {
			base = filepath.Dir(l.c.File)
		}
		*s = filepath.Join(base, *s)
	}
	return ""
}

// setKey sets a key from the text of a variable or flag.
func (l *loader) setKey(k key[Config], text string, at Origin) {
	field := k.field(l.c)
	problem := setText(field, text)
	if problem == "" && k.file {
		problem = l.absolute(field, at)
	}
	if problem != "" {
		l.wrong(at, k.path, "%s", problem)
		return
	}
	l.given(k.path, at)
}

func (l *loader) readEnv() {
	for _, k := range keys() {
		if text := l.lookup(k.envName()); text != "" {
			l.setKey(k, text, Origin{Source: SourceEnv, Name: k.envName()})
		}
	}
}

func (l *loader) readFlags() {
	known := map[string]bool{}
	for _, k := range keys() {
		known[k.path] = true
		if text, ok := l.o.Flags[k.path]; ok {
			l.setKey(k, text, Origin{Source: SourceFlag, Name: "--" + k.flagName()})
		}
	}
	var unknown []string
	for path := range l.o.Flags {
		if !known[path] {
			unknown = append(unknown, path)
		}
	}
	slices.Sort(unknown)
	for _, path := range unknown {
		l.wrong(Origin{Source: SourceFlag, Name: "flag " + path}, path, "no such key")
	}
}

// fillDefaults sets what nobody gave.
func (l *loader) fillDefaults() {
	c := l.c
	if _, ok := c.origins["on_disconnect"]; !ok && c.Hall {
		// A hall forgets the sessions of a connection that has gone.
		c.OnDisconnect = Drop
	}
	for _, k := range keys() {
		if k.path == "on_disconnect" && c.OnDisconnect != "" {
			continue
		}
		if _, ok := c.origins[k.path]; !ok && k.def != "" {
			if problem := setText(k.field(c), k.def); problem != "" {
				l.wrong(Origin{}, k.path, "default: %s", problem)
			}
		}
	}
	missing := func(path string) bool { _, ok := c.origins[path]; return !ok }
	if missing("state_dir") {
		c.StateDir = l.stateDir()
		if c.StateDir == "" {
			l.wrong(Origin{}, "state_dir", "must be given: there is no home directory")
		}
	}
	if missing("worker.name") {
		host, _ := os.Hostname() // without one, the name is "worker"
		c.Worker.Name = nameFromHost(host)
	}
	if missing("worker.capacity") {
		c.Worker.Capacity = 2 * runtime.NumCPU()
	}
	if missing("worker.max_warm") {
		c.Worker.MaxWarm = 4 * c.Worker.Capacity
	}
	if c.Hall && len(l.raiders) == 0 && !l.raidersBad {
		// A hall starts its raider under any name; here it needs one.
		l.raiders = []*raiderEntry{{label: "raiders." + hallRaiderName, raider: Raider{Name: hallRaiderName}}}
	}
	for _, e := range l.raiders {
		l.chooseKind(e)
		for _, k := range raiderKeys() {
			if k.path == "kind" && e.raider.Kind != "" {
				continue
			}
			if missing(e.label+"."+k.path) && k.def != "" {
				if problem := setText(k.field(&e.raider), k.def); problem != "" {
					l.wrong(Origin{}, k.path, "default: %s", problem)
				}
			}
		}
		if e.raider.HallOwn() && missing(e.label+".pass_env") {
			e.raider.PassEnv = hallPassEnv()
		}
		c.Raiders = append(c.Raiders, e.raider)
	}
	if len(c.Raiders) == 0 {
		c.Raiders = []Raider{demoRaider()}
	}
}

// demoRaider serves a fleet that has no raiders configured.
func demoRaider() Raider {
	return Raider{
		Name: "demo", Kind: KindDemo, Description: "built in, without a model",
		OnWorkerLoss: LossFail, ClientMethods: ClientMethodsClient, Open: OpenEager, MaxAttempts: 3, TranscriptBudget: 64 << 10, Permissions: Permissions{Mode: string(policy.ModeDefault)}, Policy: new(policy.Policy),
	}
}

func (l *loader) stateDir() string {
	// The specification of XDG says that a relative path is to be ignored.
	if s := l.lookup("XDG_STATE_HOME"); filepath.IsAbs(s) {
		return filepath.Join(s, "raiderfleet")
	}
	if home := l.lookup("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "raiderfleet")
	}
	return ""
}

// nameFromHost makes a worker's name of a host's.
func nameFromHost(host string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(host))
	name = strings.TrimLeft(name[:min(len(name), maxNameLength)], "-_")
	if name == "" {
		return "worker"
	}
	return name
}
