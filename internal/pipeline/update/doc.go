// Package update decides what must happen on which node: the difference between
// what runs and what is wanted, which updater covers which part of it, and in
// which order the nodes move.
//
// Promise: pure. The same facts, in whatever order, give the same plan and so
// the same digest; every difference has exactly one owner, or a verdict says
// that none covers it; all verdicts are returned, not the first. A plan with a
// verdict must not run.
//
// Input: Input, gathered by the controller. Output: Outcome with a model.Plan.
// Callers: the controller (which stores, approves and runs that very value).
//
// An updater is one entry of the list in updater.go. Example:
//
//	out := update.Make(update.Input{Nodes: nodes, Target: target, Payloads: payloads})
//	if len(out.Verdicts) == 0 { run(out.Plan) }
package update
