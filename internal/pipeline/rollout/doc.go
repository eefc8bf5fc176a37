// Package rollout decides which nodes go next: order, waves, canary, zones, budget, soak,
// windows, hold, pause, halt. A node that fails gets another attempt or an undo, or waits
// for a person.
//
// Promise: pure, and computed from observations each time: no lock, no counter, no memory,
// so that a crash at any line costs nothing. Unavailable nodes count against a pool's
// budget for any cause; a control-plane node counts only its own kind. Control-plane nodes
// move one at a time, and only while the others are healthy. A wait that only a person can
// end is Blocked, and is reported before the start where it is known. No node starts
// outside a window, or after a pool's maximum of failures. No node is tried more often
// than its pool allows. A node is done only when it was observed at its target; one that
// is observed at its old version afterwards has failed.
//
// Size: one decision over one row of facts, with the maintenance windows (window.go).
// Forecasts and the conversion of API objects are packages of their own.
//
// Input: the plan that was approved and the facts of each node. Output: Decision: actions
// (each safe to repeat), stages, blockers. Callers: the controller, which carries the
// actions out and asks again; the command line, which prints Outline next to the plan.
// Where the state is: attempts are in the mark on the node and in its run, times in the
// record that a finished node keeps.
//
//	d := rollout.Next(in)
//	for _, a := range d.Actions { do(a) }
package rollout
