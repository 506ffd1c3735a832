package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codes of JSON-RPC 2.0 and of ACP.
const (
	CodeParse            = -32700
	CodeInvalidRequest   = -32600
	CodeMethodNotFound   = -32601
	CodeInvalidParams    = -32602
	CodeInternal         = -32603
	CodeRequestCancelled = -32800
	CodeAuthRequired     = -32000
	CodeNotFound         = -32002
)

// ErrClosed is returned for what was asked of, or still open on, a connection
// that has ended.
var ErrClosed = errors.New("rpc: connection closed")

// ErrPeerCancelled is the cause of a request's context when the peer sent
// $/cancel_request for it.
var ErrPeerCancelled = errors.New("rpc: request cancelled by the peer")

// ErrAnswered is returned for a second answer to one request.
var ErrAnswered = errors.New("rpc: request already answered")

// Error is the error object of a response. Data is passed as it is; nil leaves
// it out.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error gives code and message; Data may hold secrets and is left out.
func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// parseError reads a response's error member. A peer that breaks the format
// still gets its call failed, with CodeInternal.
func parseError(raw json.RawMessage) *Error {
	e := new(Error)
	if err := json.Unmarshal(raw, e); err != nil {
		return &Error{Code: CodeInternal, Message: "the peer sent a malformed error object"}
	}
	return e
}
