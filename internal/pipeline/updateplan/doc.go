// Package updateplan decides what must happen on which node: the difference between
// what runs and what is wanted, which updater covers which part of it, and in
// which order the nodes move.
//
// A node is two flat maps, current and desired: path to value (fields.go). The
// updaters are asked in their order; each answers with steps that carry the
// changes they make (claim.go). A change is applied to current before the next
// updater is asked, and the list is asked again until nothing moves, so that an
// updater may depend on another one.
//
// Promise: pure. The same facts, in any order, give the same plan and so the same digest.
// Every difference has exactly one owner, or a blocker names its path and why no updater
// covers it. All blockers are returned, not only the first. A plan with a blocker must not
// run.
//
// Fit decides before the approval which nodes a bundle does not fit: platform, runtime, versions.
//
// Input: Input, gathered by the controller. Output: Outcome with a model.Plan.
// Callers: the controller (which stores, approves and runs that very value), the
// extension for Cluster API (Cover, for one machine), the command line (Fit).
//
// Size: the claims of all updaters are read together, since who owns a path is decided
// by their order.
//
// An updater's claim is one Updater in the list in claim.go. Example:
//
//	out := update.Make(update.Input{Nodes: nodes, Target: target, Payloads: payloads})
//	if len(out.Blockers) == 0 { run(out.Plan) }
package updateplan
