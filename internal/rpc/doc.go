// Package rpc speaks JSON-RPC 2.0 over newline-delimited JSON, the form in
// which ACP travels on stdio and TCP.
//
// Ids, params, results and error data pass as the exact text the peer sent: an
// id may be any string, any number or null. A bad line is answered and the
// connection goes on. Requests, and the responses to our own calls, are
// matched by github.com/sourcegraph/jsonrpc2, which knows only unsigned and
// string ids, decodes params, and ends a connection on a bad line; so it is
// given small envelopes with ids of our own, and the raw texts are kept beside
// it (see engine). Notifications, of which there are thousands a second, do not
// pass through it at all.
//
// Order: messages are handled one at a time in the order of their arrival, and
// written in the order in which Notify, Call, Reply and ReplyError were called
// by one goroutine.
package rpc
