package bus

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// dialFunc is a nats.CustomDialer.
type dialFunc func(network, address string) (net.Conn, error)

// Dial calls f.
func (f dialFunc) Dial(network, address string) (net.Conn, error) { return f(network, address) }

// open connects to the servers of target and gives up when ctx ends: nats.Connect takes no
// context, and a server that accepts and says nothing would keep the caller for the
// timeout, times the number of servers.
func open(ctx context.Context, target string, timeout time.Duration, opts []nats.Option) (*nats.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	var connected atomic.Bool
	var unwatch []func() bool // nats.Connect dials one after the other, on this goroutine
	dial := dialFunc(func(network, address string) (net.Conn, error) {
		if connected.Load() {
			// A reconnect outlives ctx. It is bounded by the timeout.
			return d.DialContext(context.WithoutCancel(ctx), network, address)
		}
		conn, err := d.DialContext(ctx, network, address)
		if err == nil {
			unwatch = append(unwatch, context.AfterFunc(ctx, func() { _ = conn.Close() }))
		}
		return conn, err
	})
	// The dialer looks names up itself, and ends that with ctx too.
	nc, err := nats.Connect(target, append(opts, nats.SetCustomDialer(dial), nats.SkipHostLookup())...)
	connected.Store(true)
	for _, stop := range unwatch {
		stop()
	}
	if ctx.Err() != nil {
		if nc != nil {
			nc.Close()
		}
		return nil, ctx.Err()
	}
	return nc, err
}

// redact drops user and password from URLs.
func redact(urls []string) string {
	out := make([]string, len(urls))
	for i, u := range urls {
		// The last @ of all: a password may hold one, or a comma.
		if at := strings.LastIndex(u, "@"); at >= 0 {
			scheme, _, found := strings.Cut(u, "://")
			if !found || strings.Contains(scheme, "@") {
				scheme = "nats"
			}
			u = scheme + "://" + u[at+1:]
		}
		out[i] = u
	}
	return strings.Join(out, ",")
}

// withoutURL drops the URL that an error of parsing it quotes, password and all.
func withoutURL(err error) error {
	if _, bad := errors.AsType[*url.Error](err); bad {
		return errors.New("the URL is not valid")
	}
	return err
}
