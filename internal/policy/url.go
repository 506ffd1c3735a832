package policy

import (
	"net"
	"net/url"
	"path"
	"strings"
)

// maxURLBytes bounds what is looked at.
const maxURLBytes = 8 << 10

// address is a parsed URL: what a program that fetches it goes by.
type address struct {
	scheme, host string
	// rest is the cleaned path and the query.
	rest string
	// plain: nothing in it that programs read differently, such as a user in front of
	// the host, a '\' or a host that isn't ASCII.
	plain bool
}

// parseAddress parses a URL. ok is false for what is none.
func parseAddress(s string) (a address, ok bool) {
	plain := len(s) <= maxURLBytes && !strange(s, "") && !strings.ContainsAny(s, `\ `)
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Scheme == "" || u.Hostname() == "" || u.Opaque != "" {
		return address{}, false
	}
	a.scheme, a.host = strings.ToLower(u.Scheme), strings.ToLower(u.Hostname())
	for _, c := range a.host {
		plain = plain && c < 0x80
	}
	if port := u.Port(); port != "" && a.scheme+":"+port != "https:443" && a.scheme+":"+port != "http:80" {
		a.host = net.JoinHostPort(a.host, port)
	} else if strings.Contains(a.host, ":") {
		a.host = "[" + a.host + "]"
	}
	a.plain = plain && u.User == nil && !strings.HasSuffix(u.Host, ":")
	// u.Path is decoded: %2e%2e is '..' for many servers.
	clean := path.Clean("/" + u.Path)
	if strings.HasSuffix(u.Path, "/") && clean != "/" {
		clean += "/"
	}
	// What was encoded would be read as something else once it is decoded.
	if strange(clean, "") || strings.ContainsAny(clean, "?#%\\") {
		a.plain = false
	}
	a.rest = clean
	if u.RawQuery != "" {
		a.rest += "?" + u.RawQuery
	}
	return a, true
}

func (a address) String() string { return a.scheme + "://" + a.host + a.rest }

// urlPattern is a pattern for URLs, cut into the parts of one: a * can't reach from the
// host into the path or the other way round.
type urlPattern struct {
	scheme string // "*" for any
	host   string // "*" for any, "*.example.org" for the hosts below it
	rest   glob
}

func parseURLPattern(pattern string) (u *urlPattern, offset int, problem string) {
	scheme, after, found := strings.Cut(pattern, "://")
	if !found || scheme == "" {
		return nil, 0, "must be a URL such as https://example.org/*"
	}
	at := len(scheme) + len("://")
	host, rest := after, "/"
	if i := strings.IndexAny(after, "/?"); i >= 0 {
		host, rest = after[:i], after[i:]
	}
	if strings.HasPrefix(rest, "?") {
		rest = "/" + rest
	}
	scheme, host = strings.ToLower(scheme), strings.ToLower(host)
	if scheme != "*" && strings.ContainsAny(scheme, `*?\`) {
		return nil, 0, "the scheme is a word such as https, or *"
	}
	if host != "*" {
		name := strings.TrimPrefix(host, "*.")
		if i := strings.IndexAny(name, `*\@ `); i >= 0 || name == "" {
			return nil, at + len(host) - len(name) + max(i, 0), "the host is a name, *.name for all below it, or *"
		}
	}
	host = strings.TrimSuffix(host, map[string]string{"https": ":443", "http": ":80"}[scheme])
	return &urlPattern{scheme: scheme, host: host, rest: compileGlob(rest, false)}, 0, ""
}

// matchesURL says whether the pattern means a URL. An allow needs a plain one.
func (r *Rule) matchesURL(a address, allow bool) bool {
	p := r.url
	if p == nil || allow && !a.plain || p.scheme != "*" && p.scheme != a.scheme {
		return false
	}
	host := a.host
	if !allow {
		host = strings.TrimSuffix(host, ".") // the same host
	}
	switch below, sub := strings.CutPrefix(p.host, "*"); {
	case p.host == "*":
	case sub && (!strings.HasSuffix(host, below) || len(host) == len(below)):
		return false
	case !sub && host != p.host:
		return false
	}
	return p.rest.matches(a.rest, false)
}
