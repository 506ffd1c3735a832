package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"raiderfleet/internal/acphttp"
)

const (
	// headerTimeout is how long a client may take for a request's headers.
	headerTimeout = 10 * time.Second
	// keepAlive is how long a connection without a request is kept.
	keepAlive = 2 * time.Minute
	// maxHeaderBytes bounds a request's headers.
	maxHeaderBytes = 64 << 10
	// webGrace is what requests get when the front door ends.
	webGrace = time.Second
)

// ServeWeb serves ACP over WebSocket and Streamable HTTP on /acp, and /healthz and /readyz,
// until ctx ends; then it closes the listener and all connections and waits for them. A
// client that goes is treated as on TCP.
func (f *FrontDoor) ServeWeb(ctx context.Context, l net.Listener) error {
	loopback := false
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		loopback = a.IP.IsLoopback()
	}
	h := acphttp.New(acphttp.Options{
		Serve: func(ctx context.Context, r io.Reader, w io.Writer) error {
			return f.Serve(ctx, r, w, ConnOptions{GoneAtEOF: true})
		},
		Ready: func() error {
			select {
			case <-f.b.Up():
				return nil
			default:
				return errors.New("NATS is away")
			}
		},
		MaxMessageBytes: f.c.MaxLineBytes, Affinity: string(f.Instance()), Loopback: loopback, Logger: f.log,
	})
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: keepAlive, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug), Protocols: new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		h.Close()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), webGrace)
		defer cancel()
		if s.Shutdown(grace) != nil {
			_ = s.Close() // whoever holds out
		}
	})
	err := s.Serve(l)
	if stop() {
		h.Close()
		return fmt.Errorf("front door: serve HTTP: %w", err)
	}
	<-ended
	return nil
}
