package worker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// harmless are the variables that every raider gets: it could not work without them and
// they hold no secrets.
var harmless = [...]string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "no_proxy", "NO_PROXY"} //nolint:gochecknoglobals // a constant list

// environment is what the raider gets, and nothing else.
func (r *Raider) environment() []string {
	var env []string
	set := map[string]bool{}
	add := func(name, value string) {
		if !set[name] {
			set[name] = true
			env = append(env, name+"="+value)
		}
	}
	for name, value := range r.Env {
		add(name, value)
	}
	for _, name := range append(slices.Clone(r.PassEnv), harmless[:]...) {
		if value, ok := os.LookupEnv(name); ok {
			add(name, value)
		}
	}
	return env
}

// redactJSON is redact for a JSON text. What is no JSON afterwards is dropped.
func (l *lane) redactJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	text := []byte(l.redact(string(raw)))
	if !json.Valid(text) {
		return nil
	}
	return text
}

// redact takes the values of env and pass_env out of a text that people will read.
func (l *lane) redact(text string) string { return l.raider.redact(text) }

func (r *Raider) redact(text string) string {
	hide := func(name, value string) {
		// Short values are words; hiding them would garble the text.
		if len(value) >= 8 && !slices.Contains(harmless[:], name) {
			text = strings.ReplaceAll(text, value, "["+name+"]")
			escaped := string(quote(value)) // as it stands within JSON
			text = strings.ReplaceAll(text, escaped[1:len(escaped)-1], "["+name+"]")
		}
	}
	for name, value := range r.Env {
		if !filepath.IsAbs(value) {
			hide(name, value)
		}
	}
	for _, name := range r.PassEnv {
		hide(name, os.Getenv(name))
	}
	return text
}
