//go:build unix

package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// protocol is the first byte of a start command. A worker whose binary was replaced under
// it may start a shim of another version, which must not guess.
const protocol = 1

// maxFrameBytes bounds a frame: more than any argument list that a kernel takes.
const maxFrameBytes = 8 << 20

// What a worker writes on the control pipe.
const (
	cmdStart    = 's' // protocol, deadline, number of arguments, then NUL-ended: path, dir, arguments, environment
	cmdDeadline = 'd' // the new deadline, 8 bytes
	cmdSignal   = 'g' // a signal number, 1 byte
	cmdKill     = 'k' // nothing
)

// What a shim writes on the report pipe.
const (
	repReady   = 'R' // nothing: the shim waits for its start command
	repStarted = 'S' // the raider's pid, 4 bytes
	repFailed  = 'F' // text: why the raider was not started
	repExited  = 'X' // exit code 4 bytes, signal 1 byte, 1 byte whether the deadline had passed
	repGone    = 'G' // nothing: the tree is gone
)

// newFrame is kind, the payload's length and the payload.
func newFrame(kind byte, payload ...byte) []byte {
	b := append(make([]byte, 0, 5+len(payload)), kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload))) //nolint:gosec // far below 4 GiB
	return append(b, payload...)
}

// readFrame reads one frame. io.EOF means that the other side has closed or died.
func readFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrameBytes {
		return 0, nil, fmt.Errorf("read frame: %d bytes are too many", n)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	return head[0], payload, nil
}

// order is what a shim starts.
type order struct {
	deadline Boottime
	path     string // of the executable
	dir      string // "" is the shim's own
	args     []string
	env      []string
}

// encode makes the payload of a start command.
func (o order) encode() ([]byte, error) {
	b := []byte{protocol}
	b = binary.BigEndian.AppendUint64(b, uint64(o.deadline))  //nolint:gosec // turned back by decodeOrder
	b = binary.BigEndian.AppendUint32(b, uint32(len(o.args))) //nolint:gosec // bounded by maxFrameBytes below
	for _, list := range [][]string{{o.path, o.dir}, o.args, o.env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return nil, errors.New("a command, directory or variable holds a NUL byte")
			}
			b = append(append(b, s...), 0)
		}
	}
	if len(b) > maxFrameBytes {
		return nil, fmt.Errorf("command and environment are %d bytes, more than %d", len(b), maxFrameBytes)
	}
	return b, nil
}

// decodeOrder reads the payload of a start command.
func decodeOrder(b []byte) (order, error) {
	if len(b) < 13 || b[0] != protocol {
		return order{}, errors.New("the shim is of another version than the worker")
	}
	o := order{deadline: Boottime(binary.BigEndian.Uint64(b[1:]))} //nolint:gosec // was an int64
	n := int(binary.BigEndian.Uint32(b[9:]))
	list := strings.Split(string(b[13:]), "\x00")
	list = list[:len(list)-1] // what follows the last NUL
	if n < 1 || n > maxFrameBytes || len(list) < 2+n {
		return order{}, errors.New("the start command is cut short")
	}
	o.path, o.dir, o.args, o.env = list[0], list[1], list[2:2+n], list[2+n:]
	return o, nil
}
