package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"raiderfleet/subjects"
)

// maxNameLength leaves room in a subject token for a slot's number and prefix.
const maxNameLength = 64

// checkName checks a fleet's or a worker's name: both are subject tokens.
func checkName(s string) string {
	if len(s) > maxNameLength || !regexp.MustCompile(`^[a-z0-9][-a-z0-9_]*$`).MatchString(s) {
		return fmt.Sprintf("must be lower case letters, digits, '-' and '_', at most %d, not %q", maxNameLength, s)
	}
	return ""
}

func checkRaiderName(s string) string {
	if _, err := subjects.ParseRaider(s); err != nil || len(s) > maxNameLength {
		return fmt.Sprintf("must be letters, digits, '-' and '_', at most %d, not %q", maxNameLength, s)
	}
	return ""
}

func checkNotEmpty(s string) string {
	if s == "" {
		return "can't be empty"
	}
	return ""
}

func checkRange(n, low, high int) string {
	if n < low || n > high {
		return fmt.Sprintf("must be from %d to %d", low, high)
	}
	return ""
}

func checkOneOf(s string, words ...string) string {
	if slices.Contains(words, s) {
		return ""
	}
	return fmt.Sprintf("must be %s, not %q%s", strings.Join(words, " or "), s, suggest(s, words))
}

func checkHostPort(s string) string {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("must be host:port, such as 127.0.0.1:38421, not %q", s)
	}
	return checkPort(port)
}

func checkPort(port string) string {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Sprintf("the port must be a number from 0 to 65535, not %q", port)
	}
	return ""
}

// checkURLs never quotes a URL: there may be a password in it.
func checkURLs(c *Config) string {
	for i, s := range c.NATS.URLs {
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Hostname() == "":
			return fmt.Sprintf("entry %d must be a URL such as nats://127.0.0.1:4222", i+1)
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			return fmt.Sprintf("entry %d must start with nats://, tls://, ws:// or wss://", i+1)
		case u.Port() != "" && checkPort(u.Port()) != "":
			return fmt.Sprintf("entry %d: %s", i+1, checkPort(u.Port()))
		}
	}
	return ""
}

// redactURL drops user and password.
func redactURL(s string) string {
	// The last @ of all: a password may hold one.
	at := strings.LastIndex(s, "@")
	if at < 0 {
		return s
	}
	scheme, _, found := strings.Cut(s, "://")
	// A scheme has no colon: what has one is a user and the begin of a password.
	if !found || strings.ContainsAny(scheme, ":@") {
		scheme = "nats"
	}
	return scheme + "://***@" + s[at+1:]
}

// check looks at every value that could be read, then at what must fit together.
func (l *loader) check() {
	c := l.c
	for _, k := range keys() {
		if k.check == nil || l.bad[k.path] {
			continue
		}
		if problem := k.check(c); problem != "" {
			l.wrong(c.origins[k.path], k.path, "%s", problem)
		}
	}
	for i, e := range l.raiders {
		l.checkRaider(e)
		c.Raiders[i].Policy = l.compilePermissions(e)
	}
	l.checkNATS()
	if !l.bad["worker.max_warm"] && !l.bad["worker.capacity"] && c.Worker.MaxWarm < c.Worker.Capacity {
		l.wrong(c.origins["worker.max_warm"], "worker.max_warm",
			"can't be below worker.capacity (%d): a live run has a process too", c.Worker.Capacity)
	}
	l.checkServed()
}

func (l *loader) checkRaider(e *raiderEntry) {
	for _, k := range raiderKeys() {
		path := e.label + "." + k.path
		if k.check == nil || l.bad[path] {
			continue
		}
		// Without its kind nothing can be said about the command.
		if k.path == "command" && l.bad[e.label+".kind"] {
			continue
		}
		if problem := k.check(&e.raider); problem != "" {
			at, ok := l.c.origins[path]
			if !ok {
				at = l.c.origins[e.label]
			}
			l.wrong(at, path, "%s", problem)
		}
	}
}

func (l *loader) checkNATS() {
	c := l.c
	if (c.NATS.TLS.Cert == "") != (c.NATS.TLS.Key == "") && !l.bad["nats.tls.cert"] && !l.bad["nats.tls.key"] {
		have, missing := "nats.tls.cert", "key"
		if c.NATS.TLS.Cert == "" {
			have, missing = "nats.tls.key", "cert"
		}
		l.wrong(c.origins[have], have, "needs nats.tls.%s too", missing)
	}
	if c.NATS.Embedded && len(c.NATS.URLs) > 0 {
		embedded, urls := c.origins["nats.embedded"], c.origins["nats.urls"]
		// The one that overrides is meant: --nats for once, over a file with embedded.
		switch {
		case urls.Source > embedded.Source:
			c.NATS.Embedded = false
			c.origins["nats.embedded"] = urls
		case urls.Source < embedded.Source:
			c.NATS.URLs = nil
			c.origins["nats.urls"] = embedded
		default:
			l.wrong(embedded, "nats.embedded", "can't be true together with nats.urls")
		}
	}
	if c.NATS.Embedded && c.Replicas == 3 && !l.bad["replicas"] {
		l.wrong(c.origins["replicas"], "replicas", "3 needs a cluster of NATS servers, nats.embedded runs one")
	}
}

// checkServed checks the names of the raiders that the worker is to serve.
func (l *loader) checkServed() {
	c := l.c
	at, given := c.origins["worker.raiders"]
	if !given || l.raidersBad {
		return
	}
	if len(c.Worker.Raiders) == 0 {
		l.wrong(at, "worker.raiders", "is empty; leave it out to serve all")
	}
	for _, name := range c.Worker.Raiders {
		if _, ok := c.Raider(name); !ok {
			l.wrong(at, "worker.raiders", "no raider is called %q%s", name, suggest(name, c.RaiderNames()))
		}
	}
}
