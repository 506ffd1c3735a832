// Package worker owns lanes and runs raiders.
//
// A Worker pulls batons while it has a free place, takes the lane of each (offer, bid,
// claim), keeps the claim by publishing it again, runs the lane's prompts one after the
// other in a raider process under a shim, and gives the lane up by publishing
// 'released'. docs/architecture.md has the protocol's reasons; the code here says, at
// each step, what breaks without it.
package worker
