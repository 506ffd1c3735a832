package proof

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"raiderfleet/subjects"
)

// frame is one message of the NATS protocol, as it came.
type frame struct {
	raw     []byte
	op      string
	subject string
	reply   string
	header  []byte
	body    []byte
}

type frameReader struct{ in *bufio.Reader }

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{bufio.NewReaderSize(r, 64<<10)}
}

// next reads a frame. Those without a payload have only raw and op.
func (r *frameReader) next() (frame, error) {
	line, err := r.in.ReadBytes('\n')
	if err != nil {
		return frame{}, err
	}
	w := strings.Fields(string(line))
	f := frame{raw: line}
	if len(w) == 0 {
		return f, nil
	}
	f.op = strings.ToUpper(w[0])
	args := w[1:]
	sizes := 1
	switch f.op {
	case "PUB":
	case "HPUB":
		sizes = 2
	case "MSG", "HMSG":
		if f.op == "HMSG" {
			sizes = 2
		}
		if len(args) > 1 {
			args = append([]string{args[0]}, args[2:]...) // without the subscription's id
		}
	default:
		return f, nil
	}
	if len(args) < sizes+1 {
		return f, io.ErrUnexpectedEOF
	}
	f.subject = args[0]
	if len(args) > sizes+1 {
		f.reply = args[1]
	}
	size, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return f, err
	}
	head := 0
	if sizes == 2 {
		if head, err = strconv.Atoi(args[len(args)-2]); err != nil || head > size {
			return f, io.ErrUnexpectedEOF
		}
	}
	payload := make([]byte, size+2)
	if _, err := io.ReadFull(r.in, payload); err != nil {
		return f, err
	}
	f.raw = append(f.raw, payload...)
	f.header, f.body = payload[:head], payload[head:size]
	return f, nil
}

// held is what a tap can hold back, once.
type held int

const (
	holdNothing held = iota
	// holdBaton: the front door's next baton. Its prompt has been acknowledged.
	holdBaton
	// holdAck: BACKLOG's next acknowledgement. The prompt is accepted, the front door
	// doesn't know.
	holdAck
)

// tap reads what passes between a front door and its server: which prompts it published,
// and which of them were accepted. It can hold back what comes between two publishes, for
// the front door to die there.
type tap struct {
	h     *history
	fleet subjects.Fleet

	mu      sync.Mutex // guards the rest
	hold    held
	caught  chan struct{}
	objects map[string]string        // tags of bodies in the object store: by their chunks' id, then by name
	opening map[subjects.LaneID]bool // whose next baton is of an open, not of a prompt
}

func newTap(h *history, fleet subjects.Fleet) *tap {
	return &tap{h: h, fleet: fleet, objects: map[string]string{}, opening: map[subjects.LaneID]bool{}}
}

// object sees a prompt that is too large for a message go to the object store: chunks
// first, the description that names it second.
func (t *tap) object(f frame) {
	rest, ok := strings.CutPrefix(f.subject, "$O."+t.fleet.PayloadsBucket()+".")
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if chunks, ok := strings.CutPrefix(rest, "C."); ok {
		if _, known := t.objects[chunks]; !known {
			t.objects[chunks] = tagOf(f.body)
		}
		return
	}
	var info struct {
		Name string `json:"name"`
		NUID string `json:"nuid"`
	}
	if json.Unmarshal(f.body, &info) == nil {
		t.objects[info.Name] = t.objects[info.NUID]
	}
}

// tagOf is the tag of a prompt that is published.
func (t *tap) tagOf(h subjects.PromptHeader, body []byte) string {
	if h.Payload == "" {
		return tagOf(body)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.objects[h.Payload]
}

// arm makes the tap hold back something. The channel is closed when it has.
func (t *tap) arm(what held) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold, t.caught = what, make(chan struct{})
	return t.caught
}

// disarm ends that, and says whether something was held back.
func (t *tap) disarm() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	caught := t.hold == holdNothing
	t.hold = holdNothing
	return caught
}

func (t *tap) holds(what held) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hold != what {
		return false
	}
	t.hold = holdNothing
	close(t.caught)
	return true
}

// ofOpen says whether a lane's next baton is that of an open.
func (t *tap) ofOpen(lane subjects.LaneID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	opening := t.opening[lane]
	delete(t.opening, lane)
	return opening
}

// tapWire is one connection under a tap.
type tapWire struct {
	t *tap

	mu      sync.Mutex // guards the rest
	replies map[string]subjects.PromptID
}

func (t *tap) wire() *tapWire { return &tapWire{t: t, replies: map[string]subjects.PromptID{}} }

// up sees what the front door sends.
func (w *tapWire) up(f frame) bool {
	if _, _, lane, err := w.t.fleet.ParseReady(f.subject); err == nil {
		return w.t.ofOpen(lane) || !w.t.holds(holdBaton)
	}
	w.t.object(f)
	_, lane, _, err := w.t.fleet.ParseBacklog(f.subject)
	if err != nil || f.op != "HPUB" {
		return true
	}
	raw, err := nats.DecodeHeadersMsg(f.header)
	if err != nil {
		return true
	}
	h, err := subjects.ParsePromptHeader(raw)
	if err != nil {
		return true
	}
	if h.Kind == subjects.KindOpen {
		w.t.mu.Lock()
		w.t.opening[lane] = true
		w.t.mu.Unlock()
		w.t.h.opened(h.Prompt)
		return true
	}
	w.mu.Lock()
	w.replies[f.reply] = h.Prompt
	w.mu.Unlock()
	w.t.h.published(h.Prompt, h.Session, w.t.tagOf(h, f.body))
	return true
}

// down sees what the server sends.
func (w *tapWire) down(f frame) bool {
	if f.op != "MSG" && f.op != "HMSG" {
		return true
	}
	w.mu.Lock()
	id, ours := w.replies[f.subject]
	delete(w.replies, f.subject)
	w.mu.Unlock()
	var ack struct {
		Stream    string `json:"stream"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
	}
	if !ours || json.Unmarshal(f.body, &ack) != nil || ack.Stream == "" || ack.Seq == 0 {
		return true
	}
	w.t.h.acked(id, ack.Seq, ack.Duplicate)
	return !w.t.holds(holdAck)
}
