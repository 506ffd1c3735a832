package acphttp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// headerConnection and headerSession name a connection and a session.
	headerConnection = "Acp-Connection-Id"
	headerSession    = "Acp-Session-Id"
	headerVersion    = "Acp-Protocol-Version"
	// affinityCookie lets a balancer send a connection's requests to the same front door.
	affinityCookie = "raiderfleet_door"
	// Endpoint is the path of ACP.
	Endpoint = "/acp"
)

// Options configure a Handler. Serve is required.
type Options struct {
	// Serve serves one connection, a line a message, until r ends or ctx does. It is called
	// on a goroutine of its own.
	Serve func(ctx context.Context, r io.Reader, w io.Writer) error
	// Ready says why the process can't serve at the moment; nil: it can. Default: it can.
	Ready func() error
	// MaxMessageBytes bounds a message of a client. Default 32 MiB.
	MaxMessageBytes int
	// StreamBytes bounds what a stream keeps that nobody reads; a message more may come.
	// Default 1 MiB.
	StreamBytes int
	// MaxConnections bounds the connections. Default 1024.
	MaxConnections int
	// Idle is how long a connection over HTTP lasts that no request and no stream uses.
	// Default 5 minutes.
	Idle time.Duration
	// Beat is how often an open stream is written to when it is silent, and a WebSocket is
	// pinged. Default 15 s; three times that without an answer ends a WebSocket.
	Beat time.Duration
	// Affinity is the value of the affinity cookie. Default none is set.
	Affinity string
	// Loopback: the listener is on loopback, and so has every host to be that is asked for.
	Loopback bool
	Logger   *slog.Logger
}

// Handler serves ACP over HTTP and WebSocket, and /healthz and /readyz.
type Handler struct {
	o    Options
	mux  *http.ServeMux
	life context.Context //nolint:containedctx // of the connections, which outlive requests
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex // guards the rest
	conns  map[string]*connection
	count  int // WebSockets too
	closed bool
}

// New makes a handler. Close ends it.
func New(o Options) *Handler {
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, 32<<20)
	o.StreamBytes = cmp.Or(o.StreamBytes, 1<<20)
	o.MaxConnections = cmp.Or(o.MaxConnections, 1024)
	o.Idle = cmp.Or(o.Idle, 5*time.Minute)
	o.Beat = cmp.Or(o.Beat, 15*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{o: o, mux: http.NewServeMux(), conns: map[string]*connection{}}
	h.life, h.end = context.WithCancel(context.Background())
	h.mux.HandleFunc(Endpoint, h.acp)
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	h.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if o.Ready != nil {
			if err := o.Ready(); err != nil {
				plain(w, http.StatusServiceUnavailable, err.Error())
				return
			}
		}
		plain(w, http.StatusOK, "ready")
	})
	return h
}

// Close ends all connections and waits for them. Later requests are refused.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.end()
	h.work.Wait()
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h.mux.ServeHTTP(w, r)
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // the client may have gone
}

func (h *Handler) acp(w http.ResponseWriter, r *http.Request) {
	if text := h.foreign(r); text != "" {
		plain(w, http.StatusForbidden, text)
		return
	}
	switch {
	case isUpgrade(r):
		h.webSocket(w, r)
	case r.Method == http.MethodPost:
		h.post(w, r)
	case r.Method == http.MethodGet:
		h.stream(w, r)
	case r.Method == http.MethodDelete:
		h.delete(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		plain(w, http.StatusMethodNotAllowed, "use GET, POST or DELETE")
	}
}

// foreign says why a request is refused that a page of another origin made a browser send.
// The browser's user has not asked for it, whatever address it comes from.
func (h *Handler) foreign(r *http.Request) string {
	if h.o.Loopback && !isLoopback(r.Host) {
		return "the host that is asked for is not this machine"
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return ""
	}
	if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return "requests of other origins are refused"
	}
	return ""
}

// isLoopback says whether host, which may have a port, names this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// errFull: there are too many connections.
var errFull = errors.New("too many connections")

// enter counts a connection; leave has to be called when it has ended.
func (h *Handler) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return errors.New("the front door ends")
	case h.count >= h.o.MaxConnections:
		return errFull
	}
	h.count++
	h.work.Add(1)
	return nil
}

func (h *Handler) leave() {
	h.mu.Lock()
	h.count--
	h.mu.Unlock()
	h.work.Done()
}

func newID() string { return rand.Text() }
