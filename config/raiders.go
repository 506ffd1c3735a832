package config

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// readRaiders reads raiders:, a list of mappings with a name each, or a mapping by
// name. Both keep the order of the file.
func (l *loader) readRaiders(n *yaml.Node, at Origin) {
	names := map[string]int{}
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			item, place := resolve(item), at.on(item)
			label := fmt.Sprintf("raiders[%d]", i)
			if item.Kind != yaml.MappingNode {
				l.wrong(place, label, "must be a mapping that begins with name")
				continue
			}
			name := nameIn(item)
			if name == nil || isNull(name) || name.Kind != yaml.ScalarNode {
				l.wrong(place, label+".name", "must be given")
				l.readRaider(item, label, "", place)
				continue
			}
			l.readRaider(item, l.raiderLabel(label, name.Value, at.on(name), names), name.Value, place)
		}
	case yaml.MappingNode:
		// Not pairs: a name that is there twice is said in the words of a raider.
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v, place := resolve(n.Content[i]), resolve(n.Content[i+1]), at.on(n.Content[i])
			label := fmt.Sprintf("raiders[%d]", i/2)
			if k.Kind != yaml.ScalarNode {
				l.wrong(place, label, "the name must be a word")
				continue
			}
			label = l.raiderLabel(label, k.Value, place, names)
			switch {
			case isNull(v):
				v = &yaml.Node{Kind: yaml.MappingNode, Line: place.Line}
			case v.Kind != yaml.MappingNode:
				l.wrong(place, label, "must be a mapping of keys to values")
				continue
			case nameIn(v) != nil:
				l.wrong(at.on(nameIn(v)), label+".name", "is given already, by the key on line %d", place.Line)
			}
			l.readRaider(v, label, k.Value, place)
		}
	default:
		l.raidersBad = true
		l.wrong(at.on(n), "raiders", "must be a list of raiders")
		return
	}
	if len(n.Content) == 0 && !l.c.Hall {
		l.raidersBad = true
		l.wrong(at.on(n), "raiders", "is empty; leave the key out for the built-in demo raider")
	}
}

// nameIn is the value of name in a raider's mapping.
func nameIn(n *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}

// raiderLabel checks a name and returns the path that the user is told: by name where
// that is good and the first.
func (l *loader) raiderLabel(numbered, name string, at Origin, names map[string]int) string {
	if problem := checkRaiderName(name); problem != "" {
		l.wrong(at, numbered+".name", "%s", problem)
		return numbered
	}
	if first, twice := names[name]; twice {
		l.wrong(at, numbered+".name", "%q is there already, on line %d", name, first)
		return numbered
	}
	names[name] = at.Line
	return "raiders." + name
}

func (l *loader) readRaider(n *yaml.Node, label, name string, at Origin) {
	e := &raiderEntry{label: label, raider: Raider{Name: name, Line: at.Line}}
	l.raiders = append(l.raiders, e)
	l.c.origins[label] = at
	l.walkRaider(n, e, "", at)
}

// walkRaider reads a raider's mapping, or a section of it.
func (l *loader) walkRaider(n *yaml.Node, e *raiderEntry, section string, at Origin) {
	label := e.label
	if section != "" {
		label = join(label, section)
	}
	l.pairs(n, label, at, func(word string, k, v *yaml.Node) {
		name := join(section, word)
		path := e.label + "." + name
		if name == "name" {
			return // readRaiders has it
		}
		if l.c.Hall && isNull(v) {
			return // for a hall that is as if it were not there
		}
		var known []string
		for _, rk := range raiderKeys() {
			if strings.HasPrefix(rk.path, name+".") {
				if v = resolve(v); v.Kind != yaml.MappingNode {
					l.wrong(at.on(k), path, "must be a mapping of keys to values")
					return
				}
				l.walkRaider(v, e, name, at)
				return
			}
			if rk.path == name {
				if word == "command" && resolve(v).Kind == yaml.ScalarNode && !isNull(v) {
					l.wrong(at.on(v), path, "must be a list, never a shell line: one word each, such as [my-agent, --acp]")
					return
				}
				setNode(l, rk, &e.raider, path, k, v, at)
				return
			}
			if rest, ok := strings.CutPrefix(rk.path, section+"."); ok || section == "" {
				if section == "" {
					rest, _, _ = strings.Cut(rk.path, ".")
				}
				known = append(known, rest)
			}
		}
		if l.c.Hall {
			l.ignore(path, k)
			return
		}
		l.wrong(at.on(k), path, "unknown key%s", suggest(word, known))
	})
}
