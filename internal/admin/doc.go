// Package admin looks at a fleet through NATS, and acts on it: what the commands do that
// list, follow, wait, cancel, answer and reset. It needs no front door. What it changes, it
// changes by the protocols that front doors use: records by compare-and-set, requests to
// the owner of a lane.
package admin
