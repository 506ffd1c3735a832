//go:build unix

package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Config is the definition of a stream raider. The zero value is the hall's own raider
// with all its defaults.
type Config struct {
	// Command is the program and its arguments, with placeholders in the arguments (see
	// docs/stream-raiders.md). A program without a slash is looked up in PATH; a relative
	// one counts from the session's directory. Empty: the hall's own raider.
	Command []string `json:"command,omitempty"`
	// Engine and Model are handed to the command where it asks for them. Default none.
	Engine string `json:"engine,omitempty"`
	Model  string `json:"model,omitempty"`
	// Packs are handed to the command in this order, and then Persona, which is one more
	// pack unless it is among them. Default none.
	Packs   []string `json:"packs,omitempty"`
	Persona string   `json:"persona,omitempty"`
	// PermissionEnv are further variables that tell the command the path of its permission
	// socket, beside RAIDERFLEET_PERMISSION_SOCKET. Default none.
	PermissionEnv []string `json:"permissionEnv,omitempty"`
}

// Args is what follows the subcommand's name to start it with this definition. The error
// is one of Validate, all problems at once.
func (c Config) Args() ([]string, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a stream raider's definition: %w", err)
	}
	return []string{"--config", string(text)}, nil
}

// Validate says what is wrong with the definition, all at once.
func (c Config) Validate() error {
	var all []error
	if len(c.Command) > 0 {
		if c.Command[0] == "" {
			all = append(all, errors.New("command: the program is empty"))
		}
		// What a prompt or a run says must not choose what is executed.
		if slices.ContainsFunc(placeholders(), func(p string) bool { return strings.Contains(c.Command[0], p) }) {
			all = append(all, errors.New("command: the program can't hold a placeholder, only its arguments can"))
		}
	}
	for _, arg := range slices.Concat(c.Command, c.Packs, []string{c.Engine, c.Model, c.Persona}) {
		if strings.ContainsRune(arg, 0) {
			all = append(all, errors.New("a NUL byte can't be handed to a command"))
			break
		}
	}
	for _, name := range c.PermissionEnv {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			all = append(all, fmt.Errorf("permissionEnv: %q is no name of a variable", name))
		}
	}
	return errors.Join(all...)
}

// parseConfig reads what Args wrote. A field that is not known is an error: the worker and
// this process are the same binary, so it is a mistake.
func parseConfig(text string) (Config, error) {
	var c Config
	d := json.NewDecoder(bytes.NewBufferString(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("--config: %w", err)
	}
	if d.More() {
		return Config{}, errors.New("--config: more than one JSON value")
	}
	return c, c.Validate()
}

// packs are all packs of the raider.
func (c Config) packs() []string {
	if c.Persona == "" || slices.Contains(c.Packs, c.Persona) {
		return c.Packs
	}
	return append(slices.Clone(c.Packs), c.Persona)
}
