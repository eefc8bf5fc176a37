// Package rollout decides which nodes go next: order, waves, canary, zones,
// budget, soak, windows, hold, pause, halt; and what becomes of those that fail:
// another attempt, undo, or nothing until a person has looked.
//
// Promise: pure, and computed from what is seen each time: no lock, no counter,
// no memory, so that a crash at any line costs nothing. Never more nodes
// unavailable than a pool's budget, whatever made them so, except that a control-plane
// node waits for its own kind only; control-plane nodes one at a time and only while
// the others are healthy; what only a person can end is Blocked, and told before the
// start where it is known; nothing starts outside a
// window, or after as many failures as a pool bears; no node is tried more often
// than its pool allows; a node is done only when it was observed at its target,
// and one that is seen at its old version afterwards has failed.
//
// Size: one decision over one row of facts; windows, forecasts and what reads the
// objects are in packages below it already.
//
// Input: the plan that was approved and the facts of each node. Output:
// Decision: actions (each safe to repeat), stages, verdicts. Callers: the
// controller, which carries the actions out and asks again; the command line,
// which prints Outline beside the plan. What counts: attempts are in the mark
// on the node and in its run, times in the record that a finished node keeps.
//
//	d := rollout.Next(in)
//	for _, a := range d.Actions { do(a) }
package rollout
