package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxNesting bounds what is copied: an alias may name what it stands in.
const maxNesting = 32

// Convert writes a fleet.yml that means the same as a hall's file: in its order, with its
// comments, and a comment for every key that is left out. name is what the user calls the
// file. The error is a *Problems when the file is wrong, else one of w.
func Convert(w io.Writer, name string, data []byte) error {
	l := newLoader(Options{Env: func(string) (string, bool) { return "", false }})
	l.c.Hall = true
	l.c.File = filepath.Join(l.dir, hallFileName)
	l.parse(name, data)
	l.readHallEnv()
	l.c.origins["state_dir"] = Origin{} // not one of a hall, and there is no home here
	l.c.StateDir = l.dir
	l.fillDefaults()
	l.check()
	if err := l.problems.err(); err != nil {
		return err
	}
	c := &converter{l: l, name: name}
	doc, err := c.document(data)
	if err != nil {
		return fmt.Errorf("convert %s: %w", name, err)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(doc), encoder.Close()); err != nil {
		return fmt.Errorf("convert %s: %w", name, err)
	}
	text := out.String() + c.trailer
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

type converter struct {
	l    *loader
	name string
	// left are comments about keys that were left out, for the next key that stays.
	left []string
	// trailer is what stands behind the last key.
	trailer string
}

// document builds the new file of the old one's nodes.
func (c *converter) document(data []byte) (*yaml.Node, error) {
	var old yaml.Node
	if err := yaml.Unmarshal(data, &old); err != nil {
		return nil, err
	}
	top := &yaml.Node{Kind: yaml.MappingNode}
	head := "# Made of " + c.name + "."
	if len(old.Content) == 1 {
		if old.HeadComment != "" {
			head += "\n\n" + old.HeadComment
		}
		if root := resolve(old.Content[0]); root.Kind == yaml.MappingNode {
			if err := c.top(top, root); err != nil {
				return nil, err
			}
		}
	}
	c.listen(top)
	if _, given := c.l.c.origins["on_disconnect"]; !given {
		c.addText(top, "on_disconnect", Drop, "# A hall forgets the waiting prompts of a client that goes.")
	}
	if find(top, "raiders") == nil {
		raider := &yaml.Node{Kind: yaml.MappingNode}
		c.addText(raider, "kind", KindStream, "")
		raiders := &yaml.Node{Kind: yaml.MappingNode}
		add(raiders, scalar(hallRaiderName), raider)
		add(top, scalar("raiders"), raiders)
	}
	if len(c.left) > 0 {
		c.trailer = strings.Join(c.left, "\n") + "\n"
	}
	return &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{top}, HeadComment: head}, nil
}

// top takes over the keys of the top level.
func (c *converter) top(to, from *yaml.Node) error {
	for i := 0; i+1 < len(from.Content); i += 2 {
		k, v := resolve(from.Content[i]), resolve(from.Content[i+1])
		switch {
		case isNull(v):
			c.leaveOut(k.Value, from.Content[i], "it has no value")
		case k.Value == "acp":
			c.listen(to)
			for j := 0; j+1 < len(v.Content); j += 2 {
				c.note("acp."+v.Content[j].Value, v.Content[j])
			}
		case c.ignored(k.Value, from.Content[i]):
			c.note(k.Value, from.Content[i])
		case k.Value == "raiders":
			before := c.left
			c.left = nil
			raiders, err := c.raiders(v)
			if err != nil {
				return err
			}
			c.left = append(before, c.left...)
			if len(raiders.Content) > 0 {
				c.take(to, from.Content[i], raiders)
			}
		default:
			section, err := c.copied(k.Value, v, 0)
			if err != nil {
				return err
			}
			c.merge(to, from.Content[i], section)
		}
	}
	return nil
}

// raiders copies the raiders; those that are the hall's own say so.
func (c *converter) raiders(from *yaml.Node) (*yaml.Node, error) {
	to := &yaml.Node{Kind: from.Kind, HeadComment: from.HeadComment, FootComment: from.FootComment}
	if from.Kind == yaml.SequenceNode {
		for i, item := range from.Content {
			entry, err := c.raider(c.l.raiders[i], resolve(item))
			if err != nil {
				return nil, err
			}
			entry.HeadComment = c.comments(item.HeadComment)
			to.Content = append(to.Content, entry)
		}
		return to, nil
	}
	for i := 0; i+1 < len(from.Content); i += 2 {
		entry, err := c.raider(c.l.raiders[i/2], resolve(from.Content[i+1]))
		if err != nil {
			return nil, err
		}
		c.take(to, from.Content[i], entry)
	}
	return to, nil
}

func (c *converter) raider(e *raiderEntry, from *yaml.Node) (*yaml.Node, error) {
	to := &yaml.Node{Kind: yaml.MappingNode}
	if from.Kind == yaml.MappingNode {
		var err error
		if to, err = c.copied(e.label, from, 0); err != nil {
			return nil, err
		}
	}
	if _, given := c.l.c.origins[e.label+".kind"]; !given && e.raider.Kind == KindStream {
		at := 0
		if len(to.Content) > 1 && to.Content[0].Value == "name" {
			at = 2
		}
		rest := append([]*yaml.Node{scalar("kind"), scalar(KindStream)}, to.Content[at:]...)
		to.Content = append(to.Content[:at:at], rest...)
	}
	return to, nil
}

// copied is a copy of a node without aliases, keys that are ignored, and empty keys.
func (c *converter) copied(path string, n *yaml.Node, depth int) (*yaml.Node, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("line %d: nested too deeply", n.Line)
	}
	n = resolve(n)
	out := *n
	out.Anchor, out.Alias, out.Content = "", nil, nil
	for i := 0; i < len(n.Content); i++ {
		if n.Kind != yaml.MappingNode {
			item, err := c.copied(path, n.Content[i], depth+1)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, item)
			continue
		}
		k, v := n.Content[i], n.Content[i+1]
		i++
		key := path + "." + resolve(k).Value
		switch {
		case c.ignored(key, k):
			c.note(key, k)
		case isNull(v):
			c.leaveOut(key, k, "it has no value")
		default:
			item, err := c.copied(key, v, depth+1)
			if err != nil {
				return nil, err
			}
			name := *resolve(k)
			name.Anchor = ""
			add(&out, &name, item)
		}
	}
	return &out, nil
}

func (c *converter) ignored(path string, k *yaml.Node) bool {
	for _, known := range c.l.c.Ignored {
		if known.Key == path && known.Line == k.Line {
			return true
		}
	}
	return false
}

// note is leaveOut for a key that was ignored, if it was.
func (c *converter) note(path string, k *yaml.Node) {
	if c.ignored(path, k) {
		c.leaveOut(path, k, "it means nothing here")
	}
}

// leaveOut never repeats a value: there may be a token in it.
func (c *converter) leaveOut(path string, k *yaml.Node, why string) {
	c.left = append(c.left, fmt.Sprintf("# Left out: %s (line %d), %s.", path, k.Line, why))
}

// listen adds frontdoor.listen for acp.host and acp.port.
func (c *converter) listen(to *yaml.Node) {
	at, given := c.l.c.origins["frontdoor.listen"]
	if !given || at.Line != c.l.acp.portAt.Line && at.Line != c.l.acp.hostAt.Line {
		return
	}
	section := find(to, "frontdoor")
	if section != nil && find(section, "listen") != nil {
		return
	}
	inner := &yaml.Node{Kind: yaml.MappingNode}
	c.addText(inner, "listen", c.l.c.FrontDoor.Listen, "")
	c.merge(to, scalar("frontdoor"), inner)
}

// merge adds a section, to one of that name if it is there.
func (c *converter) merge(to, k, section *yaml.Node) {
	if there := find(to, k.Value); there != nil && there.Kind == yaml.MappingNode && section.Kind == yaml.MappingNode {
		there.Content = append(there.Content, section.Content...)
		return
	}
	if section.Kind == yaml.MappingNode && len(section.Content) == 0 {
		return
	}
	c.take(to, k, section)
}

// take adds a key, with the comments about what was left out before it.
func (c *converter) take(to, k, v *yaml.Node) {
	name := *resolve(k)
	name.Anchor = ""
	name.HeadComment = c.comments(k.HeadComment)
	v.HeadComment = ""
	add(to, &name, v)
}

// comments are those about what was left out, and then the own one.
func (c *converter) comments(own string) string {
	text := strings.TrimSuffix(strings.Join(append(c.left, own), "\n"), "\n")
	c.left = nil
	return text
}

func (c *converter) addText(to *yaml.Node, key, value, comment string) {
	name := scalar(key)
	name.HeadComment = comment
	add(to, name, scalar(value))
}

func add(to, k, v *yaml.Node) { to.Content = append(to.Content, k, v) }

func scalar(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	return n
}

// find is the value of a key in a mapping.
func find(in *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(in.Content); i += 2 {
		if in.Content[i].Value == key {
			return in.Content[i+1]
		}
	}
	return nil
}
