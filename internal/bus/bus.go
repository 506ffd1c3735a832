package bus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"raiderfleet/subjects"
)

// ErrDisconnected is the cause of a context that ended because the link broke.
var ErrDisconnected = errors.New("NATS link is down")

// Options say how to connect. Zero values are the defaults.
type Options struct {
	// URLs of the servers. Ignored when InProcess is set.
	URLs []string
	// InProcess connects without a socket to a server of this process.
	InProcess *server.Server
	// Name shows in the server's connection list.
	Name string
	// User and Password, or CredentialsFile, sign in.
	User, Password  string
	CredentialsFile string
	TLS             *tls.Config
	// Layout declares the fleet.
	Layout subjects.Layout
	// AckWait is the fleet's ack_wait; timeouts derive from it. Default 30 s.
	AckWait time.Duration
	Logger  *slog.Logger
}

// Bus is a connection to NATS.
type Bus struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	layout  subjects.Layout
	ackWait time.Duration
	log     *slog.Logger
	closed  chan struct{}

	inProcess *server.Server // nil when it is another process
	declared  atomic.Bool

	mu      sync.Mutex      // guards the rest
	link    context.Context //nolint:containedctx // what it stands for is a life: that of the connection
	cut     context.CancelCauseFunc
	up      chan struct{} // closed while connected
	streams map[string]jetstream.Stream
	objects jetstream.ObjectStore
}

// Connect opens the connection. It blocks until connected, ctx ends, or no server answers.
func Connect(ctx context.Context, o Options) (*Bus, error) {
	if o.AckWait == 0 {
		o.AckWait = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Bus{
		layout: o.Layout, ackWait: o.AckWait, log: o.Logger,
		closed: make(chan struct{}), up: make(chan struct{}), inProcess: o.InProcess,
		streams: map[string]jetstream.Stream{},
	}
	close(b.up)
	b.link, b.cut = context.WithCancelCause(context.Background())

	opts := []nats.Option{
		nats.Name(o.Name),
		// A hung server is left after ack_wait/2, not after the default's minutes.
		nats.PingInterval(o.AckWait / 6), nats.MaxPingsOutstanding(2),
		nats.Timeout(o.AckWait / 4),
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 200*time.Millisecond),
		// Nothing is buffered while disconnected: a claim or an event that is sent
		// later than its sender believes would be wrong.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.lost(err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { b.restored(nc.ConnectedServerName()) }),
		nats.ClosedHandler(func(*nats.Conn) { b.lost(nil); close(b.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.Warn("NATS reported an error", "subject", subject, "error", err)
		}),
	}
	if o.User != "" {
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	if o.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(o.CredentialsFile))
	}
	if o.TLS != nil {
		opts = append(opts, nats.Secure(o.TLS))
	}
	url := strings.Join(o.URLs, ",")
	if o.InProcess != nil {
		opts = append(opts, nats.InProcessServer(o.InProcess))
		url = ""
	}
	nc, err := open(ctx, url, o.AckWait/4, opts)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", redact(o.URLs), withoutURL(err))
	}
	b.nc = nc
	js, err := jetstream.New(b.nc, jetstream.WithDefaultTimeout(o.AckWait/2),
		jetstream.WithPublishAsyncTimeout(o.AckWait/3))
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	b.js = js
	return b, nil
}

func (b *Bus) lost(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.up:
		b.up = make(chan struct{})
		b.cut(ErrDisconnected)
		if err == nil {
			break // closed by us: nobody need be warned
		}
		b.log.Warn("NATS link lost", "error", err)
	default:
	}
}

func (b *Bus) restored(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.up:
		// Reconnected without a disconnect having been told: another server all the same.
		b.cut(ErrDisconnected)
	default:
		close(b.up)
	}
	b.link, b.cut = context.WithCancelCause(context.Background())
	// As loud as its loss: who was told of that is told of this.
	b.log.Warn("NATS link restored", "server", server)
}

// Link returns a context that ends when the present link breaks, with ErrDisconnected
// as its cause. Ended already while there is no link.
func (b *Bus) Link() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.link
}

// Up returns a channel that is closed while there is a link.
func (b *Bus) Up() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.up
}

// WaitUp blocks until there is a link or ctx ends.
func (b *Bus) WaitUp(ctx context.Context) error {
	select {
	case <-b.Up():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PayloadTime bounds the transfer of one large body, which is many requests.
const PayloadTime = 2 * time.Minute

// Bound returns a context for one request: it ends with ctx, with the present link,
// and after timeout; 0 means ack_wait/6, as the lane protocol wants it. Its cause is
// ErrDisconnected when the link broke.
func (b *Bus) Bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		timeout = b.ackWait / 6
	}
	bound, unbind := b.bind(ctx)
	bound, cancel := context.WithTimeout(bound, timeout)
	return bound, func() { cancel(); unbind() }
}

// bind returns a context that ends with ctx and with the present link, the latter with
// ErrDisconnected as its cause.
func (b *Bus) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, cancel := context.WithCancelCause(ctx)
	link := b.Link()
	stop := context.AfterFunc(link, func() { cancel(context.Cause(link)) })
	return bound, func() { stop(); cancel(context.Canceled) }
}

// request is the context of one request: at most ack_wait/2, also under a ctx that has
// longer. A server without a leader does not answer at all, and a try that waits for it
// keeps the caller from the next one.
func (b *Bus) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return b.Bound(ctx, b.ackWait/2)
}

// cause puts ErrDisconnected into err when the link was why bound ended, so that a
// caller does not take it for the end of its own context.
func cause(bound context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(bound), ErrDisconnected) && !errors.Is(err, ErrDisconnected) {
		//nolint:errorlint // the context error must not be found in it: it is not the caller's.
		return fmt.Errorf("%w: %v", ErrDisconnected, err)
	}
	return err
}

// Conn is the core connection.
func (b *Bus) Conn() *nats.Conn { return b.nc }

// JetStream is the JetStream context.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Layout is the fleet's layout.
func (b *Bus) Layout() subjects.Layout { return b.layout }

// Fleet is the fleet's name.
func (b *Bus) Fleet() subjects.Fleet { return b.layout.Fleet }

// AckWait is the fleet's ack_wait.
func (b *Bus) AckWait() time.Duration { return b.ackWait }

// MaxInline is the size in bytes up to which a body travels in its message; what is
// larger goes to PAYLOADS.
func (b *Bus) MaxInline() int { return int(b.nc.MaxPayload()) - 64<<10 }

// Close closes the connection and waits for its goroutines.
func (b *Bus) Close() {
	b.nc.Close()
	<-b.closed
}
