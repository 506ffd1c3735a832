package config

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// fileName is the file that is looked for.
const fileName = "fleet.yml"

// readFile finds and reads the file, if there is one.
func (l *loader) readFile() {
	name, path := l.o.Path, l.o.Path
	if path != "" {
		if !filepath.IsAbs(path) {
			path = filepath.Join(l.dir, path)
		}
		l.parseFile(name, path)
		return
	}
	if path = filepath.Join(l.dir, fileName); exists(path) {
		l.parseFile(fileName, path)
		return
	}
	if path = filepath.Join(l.dir, hallFileName); exists(path) {
		l.parseFile(hallFileName, path)
		return
	}
	if dir := l.userConfigDir(); dir != "" {
		if path = filepath.Join(dir, "raiderfleet", fileName); exists(path) {
			l.parseFile(path, path)
		}
	}
}

// exists is true also for a file that can't be looked at: to skip it in silence would
// start another fleet than the one that was meant.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// userConfigDir is os.UserConfigDir over the environment that Load was given.
func (l *loader) userConfigDir() string {
	if s := l.lookup("XDG_CONFIG_HOME"); filepath.IsAbs(s) {
		return s
	}
	home := l.lookup("HOME")
	switch {
	case !filepath.IsAbs(home):
		return ""
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support")
	default:
		return filepath.Join(home, ".config")
	}
}

// parseFile reads the file at path, which the user knows as name.
func (l *loader) parseFile(name, path string) {
	data, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		// The path is said already, in the user's own words.
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err
		}
		l.problems.add(Origin{Source: SourceFile, Name: name}, "", "can't be read: %v", err)
		return
	}
	l.c.File = path
	l.c.Hall = isHallFile(path)
	l.parse(name, data)
}

// parse reads the text of a file.
func (l *loader) parse(name string, data []byte) {
	at := Origin{Source: SourceFile, Name: name}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return // empty: all defaults
	}
	if err == nil {
		if err = decoder.Decode(&second); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			l.problems.add(at.on(&second), "", "only one document is allowed in a file")
		}
	}
	if err != nil {
		line, text := syntaxError(err)
		at.Line = line
		l.raidersBad = true
		l.problems.add(at, "", "%s", text)
		return
	}
	if len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return
	}
	l.walk(resolve(doc.Content[0]), "", at)
}

// syntaxError takes the line out of an error of the YAML reader.
func syntaxError(err error) (line int, text string) {
	m := regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)`).FindStringSubmatch(err.Error())
	if m == nil {
		return 0, "is not valid YAML"
	}
	line, _ = strconv.Atoi(m[1]) // no number: no line
	return line, "is not valid YAML: " + m[2]
}

// on is the place of a node.
func (o Origin) on(n *yaml.Node) Origin {
	o.Line = n.Line
	return o
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	n = resolve(n)
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// pairs calls f for every key of a mapping. A key that is there twice, or is no word,
// is a problem.
func (l *loader) pairs(n *yaml.Node, section string, at Origin, f func(word string, k, v *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := resolve(n.Content[i]), n.Content[i+1]
		switch first, twice := seen[k.Value]; {
		case k.Kind != yaml.ScalarNode:
			l.wrong(at.on(n.Content[i]), section, "a key must be a word")
		case twice:
			l.wrong(at.on(n.Content[i]), join(section, k.Value), "is there twice, first on line %d", first)
		default:
			seen[k.Value] = n.Content[i].Line
			f(k.Value, n.Content[i], v)
		}
	}
}

func join(section, word string) string {
	if section == "" {
		return word
	}
	return section + "." + word
}

// walk reads the top level, or a section of it.
func (l *loader) walk(n *yaml.Node, section string, at Origin) {
	if n.Kind != yaml.MappingNode {
		l.wrong(at.on(n), section, "must be a mapping of keys to values")
		return
	}
	table := keys()
	l.pairs(n, section, at, func(word string, k, v *yaml.Node) {
		path := join(section, word)
		if path == "raiders" {
			l.readRaiders(resolve(v), at)
			return
		}
		if l.c.Hall && l.readHallKey(path, k, v, at) {
			return
		}
		var siblings, paths []string
		for _, known := range table {
			if known.path == path {
				setNode(l, known, l.c, path, k, v, at)
				return
			}
			if strings.HasPrefix(known.path, path+".") {
				if !isNull(v) { // a section without keys is no mistake
					l.walk(resolve(v), path, at)
				}
				return
			}
			paths = append(paths, known.path)
			if rest, ok := strings.CutPrefix(known.path, section+"."); ok || section == "" {
				if section == "" {
					rest = known.path
				}
				sibling, _, _ := strings.Cut(rest, ".")
				siblings = append(siblings, sibling)
			}
		}
		if l.c.Hall {
			l.ignore(path, k)
			return
		}
		if section == "" {
			siblings = append(siblings, "raiders")
		}
		l.wrong(at.on(k), path, "unknown key%s", suggestKey(word, siblings, paths))
	})
}

// setNode sets a key from its node.
func setNode[T any](l *loader, k key[T], t *T, path string, name, value *yaml.Node, at Origin) {
	place := at.on(value)
	if isNull(value) {
		l.wrong(at.on(name), path, "has no value; leave the key out for the default")
		return
	}
	field := k.field(t)
	problem, line := decode(field, resolve(value))
	if problem == "" && k.file {
		problem = l.absolute(field, at)
	}
	if problem != "" {
		if line > 0 {
			place.Line = line
		}
		l.wrong(place, path, "%s", problem)
		return
	}
	if list := resolve(value); list.Kind == yaml.SequenceNode {
		for _, item := range list.Content {
			l.lines[path] = append(l.lines[path], item.Line)
		}
	}
	l.given(path, at.on(name))
}

// decode parses a node into field, a pointer. It returns what is wrong and the line
// where, if that isn't the node's own.
func decode(field any, n *yaml.Node) (problem string, line int) {
	switch f := field.(type) {
	case *[]string:
		if n.Kind != yaml.SequenceNode {
			return "must be a list, such as [first, second]", 0
		}
		list := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			item, place := resolve(item), item.Line
			if item.Kind != yaml.ScalarNode || isNull(item) {
				return "every entry must be a single word or text", place
			}
			var word string
			if problem := setText(&word, item.Value); problem != "" {
				return problem, place
			}
			list = append(list, word)
		}
		*f = list
	case *map[string]string:
		if n.Kind != yaml.MappingNode {
			return "must be a mapping of names to values", 0
		}
		return decodeMap(f, n)
	default:
		if n.Kind != yaml.ScalarNode {
			return "must be a single value", 0
		}
		return setText(field, n.Value), 0
	}
	return "", 0
}

// decodeMap never puts a value into what it says: it may be secret.
func decodeMap(m *map[string]string, n *yaml.Node) (problem string, line int) {
	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v, place := resolve(n.Content[i]), resolve(n.Content[i+1]), n.Content[i].Line
		switch _, twice := out[k.Value]; {
		case k.Kind != yaml.ScalarNode:
			return "a name must be a word", place
		case twice:
			return "the name " + strconv.Quote(k.Value) + " is there twice", place
		case v.Kind != yaml.ScalarNode || isNull(v):
			return strconv.Quote(k.Value) + ` must have a single value; "" for an empty one`, place
		case strings.ContainsRune(v.Value, 0):
			return strconv.Quote(k.Value) + " can't hold a NUL byte", place
		}
		out[k.Value] = v.Value
	}
	*m = out
	return "", 0
}
