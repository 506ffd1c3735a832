//go:build unix

// Package stream makes an ACP agent of a stream raider: a command that is run once for
// each prompt and writes JSON Lines. docs/stream-raiders.md describes those lines, the
// placeholders of the command, and the permission channel.
//
// Main is the body of the hidden subcommand `stream-raider`, a process between worker and
// command: the worker starts it under its shim like any other agent, so that raiders of
// all kinds behave the same. Its interface towards the worker, beside ACP v1:
//
//   - `stream-raider --config JSON`: the raider's definition, see Config, whose Args gives
//     these two arguments. The environment is handed on to the command as it is, and
//     RAIDERFLEET_RAIDER_BIN (or RAIDER_HALL_RAIDER_BIN) in it names the program that is
//     run where the definition has no command. Secrets belong there: arguments are in the
//     host's list of processes.
//   - session/new answers an id that begins with "fresh-". The command knows nothing of
//     it: it makes a session of its own in its first run, the inner one.
//   - The notification `_raiderfleet/inner {sessionId, inner}` tells that inner id when a
//     run names it for the first time or another than before, and always before the turn
//     is answered. sessionId is the one that the worker knows the session by.
//   - session/load takes an inner id, answers at once and replays nothing: the next run
//     is given that id. A "fresh-" id is taken too, as a session that has no inner id yet.
//   - A turn that the raider refused is answered with an error whose data is
//     {"raiderfleet":{"outcome":"refused"}}; its message is the refusal's text. Any other
//     error is a failure.
//   - SIGINT and SIGTERM are passed on to the command's process group while a run is on,
//     and end the process otherwise. session/cancel sends one SIGINT, however often it
//     comes: a second one makes the hall's raider end without a word. The end of stdin
//     sends SIGTERM, a moment later SIGKILL, and ends the process.
//
// Each run is one process group of its own. What is left of it when the command has ended
// is killed; a process that left the group is the shim's to find.
package stream
