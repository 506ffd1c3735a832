package acphttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// closeGrace is how long a client has to hear that the front door ends.
const closeGrace = 2 * time.Second

// subprotocol is echoed to a client that offers it.
const subprotocol = "acp.v1"

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// webSocket serves a connection, a message in a text frame.
func (h *Handler) webSocket(w http.ResponseWriter, r *http.Request) {
	if err := h.enter(); err != nil {
		plain(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer h.leave()
	w.Header().Set(headerConnection, newID())
	h.setAffinity(w)
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{subprotocol},
		InsecureSkipVerify: true, // foreign has looked at the origin
	})
	if err != nil {
		h.o.Logger.Debug("no WebSocket", "error", err) // the client was answered
		return
	}
	defer func() { _ = c.CloseNow() }() // closed already, as a rule
	c.SetReadLimit(int64(h.o.MaxMessageBytes))
	// The end of this context breaks the connection, so it isn't the handler's: a client is
	// told that the front door ends, if it listens.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(h.life, func() { time.AfterFunc(closeGrace, cancel) })() //nolint:contextcheck // the handler's end

	first, err := readText(ctx, c)
	if err != nil {
		return
	}
	if m := look(first); m.method != "initialize" || m.id == "" {
		_ = c.Close(websocket.StatusProtocolError, "initialize comes first")
		return
	}
	in, out := io.Pipe()
	var working sync.WaitGroup
	working.Go(func() {
		feed(ctx, c, first, out)
		_ = out.Close() // never fails
	})
	working.Go(func() { h.ping(ctx, c) })
	write := &lines{f: func(line []byte) error { return c.Write(ctx, websocket.MessageText, line) }}
	err = h.o.Serve(h.life, in, write) //nolint:contextcheck // it ends with the handler
	switch {
	case h.life.Err() != nil:
		_ = c.Close(websocket.StatusGoingAway, "the front door ends")
	case err != nil && !gone(err):
		_ = c.Close(websocket.StatusInternalError, "internal error")
	default:
		_ = c.Close(websocket.StatusNormalClosure, "")
	}
	cancel()
	_ = in.Close() // never fails
	working.Wait()
}

// gone says whether an error is only the connection's end.
func gone(err error) bool {
	return websocket.CloseStatus(err) != -1 || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled)
}

// readText reads the next text frame; others are ignored.
func readText(ctx context.Context, c *websocket.Conn) ([]byte, error) {
	for {
		kind, message, err := c.Read(ctx)
		if err != nil {
			return nil, err
		}
		if kind == websocket.MessageText {
			return message, nil
		}
	}
}

// feed writes what the client sends as lines, until it has gone, one way or the other, or
// nobody reads them any more.
func feed(ctx context.Context, c *websocket.Conn, first []byte, to io.Writer) {
	for message, err := first, error(nil); err == nil; message, err = readText(ctx, c) {
		if _, err := to.Write(line(message)); err != nil {
			return
		}
	}
}

// ping ends a connection that doesn't answer any more.
func (h *Handler) ping(ctx context.Context, c *websocket.Conn) {
	tick := time.NewTicker(h.o.Beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		bound, cancel := context.WithTimeout(ctx, 3*h.o.Beat)
		err := c.Ping(bound)
		cancel()
		if err != nil {
			_ = c.CloseNow() // who reads learns it
			return
		}
	}
}

// setAffinity sets the cookie of this front door.
func (h *Handler) setAffinity(w http.ResponseWriter) {
	if h.o.Affinity != "" {
		http.SetCookie(w, &http.Cookie{Name: affinityCookie, Value: h.o.Affinity, Path: Endpoint, HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // no secret: it names a front door, and is needed without TLS too
	}
}

// object is v as JSON.
func object(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("{}")
	}
	return b
}
