// Package subjects is the contract between the two halves of a fleet: every
// subject, stream, bucket, header and message body that front doors and workers
// exchange on NATS. It imports nothing of this module.
//
// Words:
//   - fleet: all processes that share a NATS system and a fleet name.
//   - raider: a named agent definition in the configuration.
//   - session: a conversation of one principal.
//   - prompt: one accepted session/prompt; its run is its execution.
//   - lane: what is served in order, one run at a time: a slot, else a session.
//   - baton: the one message on READY that says that a lane has work or a warm owner.
//   - claim: the last message of a lane's own subject, naming the owner and its epoch.
//   - ask: a permission request of a raider that waits for an answer.
//
// A subject is a trio that stands side by side: builder, filter, parser. Tokens are
// parsed once into types; nobody outside this package splits or spells a subject.
package subjects
