// Package rollout decides which nodes go next: order, waves, budget, pause, halt.
//
// Promise: pure, and computed from what is seen each time: no lock, no counter,
// no memory, so that a crash at any line costs nothing. Never more nodes
// unavailable than a pool's budget, whatever made them so; control-plane nodes
// one at a time and only while the others are healthy; after a failure nothing
// new starts; a node is done only when it was observed at its target.
//
// Input: the plan that was approved and the facts of each node. Output:
// Decision: actions (each safe to repeat), stages, verdicts. Caller: the
// controller, which carries the actions out and asks again.
package rollout
