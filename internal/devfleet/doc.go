// Package devfleet is a whole fleet in one process: an embedded NATS server with
// JetStream, a front door and a worker, for a developer's machine.
//
// A fleet with a state directory is the only one on that directory (a lock sees to it),
// keeps random NATS credentials there in a file that only its user can read, and says in
// a ready file how to reach it. Other processes join it by that file (Join), or start a
// detached one when there is none (JoinOrStart). A fleet without a state directory is
// thrown away at its end.
package devfleet
