// Package bench measures the fleet with the demo raider as a process of its own, each
// figure beside what it is compared with in the same run: a core NATS request, a
// JetStream publish, and the same raider over a bare pipe. docs/performance.md has the
// figures and the method. It has no code outside its tests.
package bench
