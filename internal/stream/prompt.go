//go:build unix

package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// block is a content block of a prompt.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	URI      string `json:"uri"`
	Resource struct {
		URI  string  `json:"uri"`
		Text *string `json:"text"`
	} `json:"resource"`
}

// promptText makes one text of a prompt's blocks: texts, and links as their URI, joined by
// line breaks in their order; then each embedded text as a block of its own, quoted line
// by line, so that nothing in it can end the quotation. An embedded resource that is no
// text stands among the links.
func promptText(raw json.RawMessage) (string, error) {
	var blocks []block
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return "", errors.New("prompt must be an array of content blocks")
	}
	var lines []string
	var quoted strings.Builder
	for _, b := range blocks {
		switch b.Type {
		case "text":
			lines = append(lines, b.Text)
		case "resource_link":
			lines = append(lines, b.URI)
		case "resource":
			if b.Resource.Text == nil {
				lines = append(lines, b.Resource.URI)
				continue
			}
			quoted.WriteString("\n\n" + b.Resource.URI + ":\n")
			quoted.WriteString("> " + strings.ReplaceAll(strings.TrimSuffix(*b.Resource.Text, "\n"), "\n", "\n> "))
		default:
			return "", fmt.Errorf("content of type %q can't be handed to this raider", b.Type)
		}
	}
	text := strings.Join(lines, "\n") + quoted.String()
	if len(lines) == 0 {
		text = strings.TrimPrefix(text, "\n\n")
	}
	return text, nil
}
