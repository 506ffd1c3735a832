//go:build unix

// Package shim owns a raider's process tree, so that nothing of it outlives the right to
// run it.
//
// A worker starts every raider through a shim: a small process of our own binary (the
// hidden subcommand `shim`, whose body is Main) in a session of its own. The shim starts
// the raider in a process group of its own and kills the whole tree
//
//   - when the raider itself ends,
//   - when the worker says so, or its end of the control pipe closes because it died,
//   - when the deadline passes that the worker keeps moving. The clock is CLOCK_BOOTTIME
//     and the shim watches it, so it makes no difference whether the worker is frozen,
//     stopped, or the machine was suspended. A deadline that has passed never comes back.
//
// The raider's stdout and stderr are the worker's pipes themselves. Its stdin goes through
// the shim, which looks at the deadline before it hands a chunk on: a worker that was
// frozen between its own check and its write can't start work that it may no longer start.
//
// # The tree
//
// On Linux the shim is a child subreaper: a process of the tree that loses its parent
// (a double-forked daemon, in a session of its own or not) becomes a child of the shim. The
// tree is gone when the shim has no children left, and only then it says so and ends. A
// process that can't be killed (another user's, or stuck in the kernel) keeps the tree
// from being gone for as long as it is there.
//
// Elsewhere there is no subreaper: only the raider's process group is killed, and a
// process that left the group is not found.
//
// A shim that is itself killed with SIGKILL takes the raider with it (Linux: parent death
// signal); the worker then kills the raider's process group and every process that still
// holds the raider's stdout or stderr. What remains is a process that left the group and
// closed both. When shim and worker are killed in the same instant, only the raider itself
// is sure to die. A shim that something stops (SIGSTOP) kills nothing before it goes on; Kill
// lets it go on, and what it finds then is still measured by the clock.
//
// # Pipes of the shim
//
// 0 is what becomes the raider's stdin, 1 and 2 are the raider's, 3 brings commands, 4
// takes reports, 5 is a file that is only held open. The raider inherits 0, 1 and 2.
package shim
