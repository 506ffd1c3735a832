package acphttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// writeTimeout is how long a stream's reader may take no byte of an event.
const writeTimeout = time.Minute

// rpcError answers a POST with an error of JSON-RPC in its body.
func rpcError(w http.ResponseWriter, status int, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(object(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": text}})) // the client may have gone
}

// body reads a POST's body; false when it was answered.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		plain(w, http.StatusUnsupportedMediaType, "the content type has to be application/json")
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(h.o.MaxMessageBytes)))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		rpcError(w, http.StatusRequestEntityTooLarge, -32600, "the message is larger than the limit")
		return nil, false
	}
	if err != nil {
		plain(w, http.StatusBadRequest, "the body can't be read")
		return nil, false
	}
	if !isJSON(body) {
		rpcError(w, http.StatusBadRequest, -32700, "parse error: the body is no JSON")
		return nil, false
	}
	switch trimmed := strings.TrimLeft(string(body[:min(len(body), 64)]), " \t\r\n"); {
	case strings.HasPrefix(trimmed, "["):
		rpcError(w, http.StatusNotImplemented, -32600, "invalid request: batches are not supported")
		return nil, false
	case !strings.HasPrefix(trimmed, "{"):
		rpcError(w, http.StatusBadRequest, -32600, "invalid request: a message is an object")
		return nil, false
	}
	return body, true
}

func (h *Handler) post(w http.ResponseWriter, r *http.Request) {
	body, ok := h.body(w, r)
	if !ok {
		return
	}
	m := look(body)
	id := r.Header.Get(headerConnection)
	if id == "" {
		if m.method != "initialize" || m.id == "" {
			plain(w, http.StatusBadRequest, headerConnection+" is missing")
			return
		}
		h.initialize(w, r, body, m)
		return
	}
	c := h.connectionOf(w, r)
	if c == nil {
		return
	}
	defer c.use()()
	session := r.Header.Get(headerSession)
	if session != "" && m.session != "" && session != m.session {
		plain(w, http.StatusBadRequest, headerSession+" and sessionId are not the same")
		return
	}
	if m.session == "" {
		m.session = session
	}
	if err := c.take(body, m); err != nil {
		plain(w, http.StatusNotFound, err.Error())
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// connectionOf is the connection that a request names; nil when it was answered.
func (h *Handler) connectionOf(w http.ResponseWriter, r *http.Request) *connection {
	id := r.Header.Get(headerConnection)
	if id == "" {
		plain(w, http.StatusBadRequest, headerConnection+" is missing")
		return nil
	}
	c := h.find(id)
	if c == nil {
		plain(w, http.StatusNotFound, "no such connection")
		return nil
	}
	// 1 is all that there is, whatever was asked for.
	if v := r.Header.Get(headerVersion); v != "" && v != "1" {
		plain(w, http.StatusBadRequest, headerVersion+" is not the version of this connection, 1")
		return nil
	}
	return c
}

// initialize begins a connection and answers with its first response.
func (h *Handler) initialize(w http.ResponseWriter, r *http.Request, body []byte, m message) {
	c, err := h.begin(m.id)
	if err != nil {
		plain(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer c.use()()
	first := c.first
	if err := c.take(body, m); err != nil {
		plain(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	select {
	case answer := <-first:
		w.Header().Set(headerConnection, c.id)
		w.Header().Set("Content-Type", "application/json")
		h.setAffinity(w)
		_, _ = w.Write(answer) // the client may have gone
	case <-c.ctx.Done():
		plain(w, http.StatusServiceUnavailable, errEnded.Error())
	case <-r.Context().Done():
		c.end()
	}
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request) {
	c := h.connectionOf(w, r)
	if c == nil {
		return
	}
	c.end()
	w.WriteHeader(http.StatusAccepted)
}

// stream serves the events of a connection, or of a session on it.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	if !accepts(r.Header.Values("Accept"), "text/event-stream") {
		plain(w, http.StatusNotAcceptable, "a stream is text/event-stream")
		return
	}
	c := h.connectionOf(w, r)
	if c == nil {
		return
	}
	defer c.use()()
	c.mu.Lock()
	s := c.streamLocked(r.Header.Get(headerSession))
	c.mu.Unlock()
	if !s.acquire() {
		plain(w, http.StatusConflict, "the stream is open already")
		return
	}
	defer s.release()
	for key, value := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no", headerConnection: c.id,
	} {
		w.Header().Set(key, value)
	}
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	if out.Flush() != nil {
		return
	}
	write := func(parts ...[]byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without one waits
		for _, p := range parts {
			if _, err := w.Write(p); err != nil {
				return false
			}
		}
		return out.Flush() == nil
	}
	beat := time.NewTicker(h.o.Beat)
	defer beat.Stop()
	for {
		if message := s.next(); message != nil {
			// What was not taken is there for the next reader.
			if !write([]byte("data: "), message, []byte("\n\n")) {
				return
			}
			s.drop()
			continue
		}
		select {
		case <-s.come:
		case <-beat.C:
			if !write([]byte(": still here\n\n")) {
				return
			}
		case <-c.ctx.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}

// accepts says whether an Accept header has a media type, or all.
func accepts(values []string, want string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			kind, _, err := mime.ParseMediaType(strings.TrimSpace(part))
			if err == nil && (kind == want || kind == "text/*" || kind == "*/*") {
				return true
			}
		}
	}
	return false
}
