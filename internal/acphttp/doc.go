// Package acphttp carries ACP over WebSocket and Streamable HTTP, both on one endpoint.
//
// It knows nothing of ACP's methods but what the transports need: which stream of a
// connection a message belongs to. Whoever serves a connection gets it as lines, one
// JSON-RPC message each, as on stdio and TCP.
//
// # Streamable HTTP
//
// A POST of initialize without a connection id begins a connection and is answered with its
// response. Every later POST carries one message and is answered 202 at once; what the agent
// sends comes on GET streams of server-sent events: one of the connection, and one for each
// session. A stream keeps what is sent before it is open, and what was not taken when it
// broke; when it is full, the agent waits.
//
// A connection ends with its DELETE, or when nothing has used it for a while. Its sessions
// live on.
package acphttp
