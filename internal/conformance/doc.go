// Package conformance holds the tests that speak ACP to a whole fleet as clients do: an
// embedded NATS server, a worker with the demo raider as a real process, and a front
// door, over a pipe and over TCP. Every line that the front door sends is validated
// against the protocol's JSON schema. It has no code outside its tests.
package conformance
