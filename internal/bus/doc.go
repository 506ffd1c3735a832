// Package bus is a process's connection to the fleet's NATS system: connecting with
// timeouts that fit the lane protocol, declaring streams, compare-and-set records,
// reads from the leader, and large bodies in the object store.
//
// Every call takes a context and is bounded: nats.go does not end a request when its
// connection breaks, so each one also ends with the link it began on (see Bus.Bound), and
// after ack_wait/2 at the latest. Only PutPayload takes as long as its context lets it.
// All methods are safe for many goroutines.
package bus
