// Package gate decides whether an update may start: a chain of named checks,
// each of which asks one question about the whole cluster.
//
// Promise: pure. Every check is asked and every blocker returned, in the order
// of the chain and then by node, so that a person sees all that is wrong at
// once. Nothing has been changed on any node before the gate is open. A check
// that cannot be answered because a fact is missing does not say yes: it says
// FactUnknown, as a warning where the fact is worth knowing only.
//
// Risks. A person may take the "no" of a check as a warning, by the check's name, with a
// reason and an end (ClusterUpdate.spec.acceptedRisks, `refit accept`). From its end on
// the check counts again. Checks with NeverAcceptable set can not be accepted, because the
// damage that they prevent cannot be repaired. The API refuses their names as well (a test
// compares the two lists).
//
// Registering a check of another part (boot image skew, lint): write
//
//	func bootImageSkew(in *Input) (blockers, blockers)
//
// in a file of its own in this package, and add its facts to Input: plain values that the
// controller gathers (controller/gatefacts). Add one line to Checks, at the place where a
// person should read its answer, and a line to TestChecks. A blocker's message holds no
// time and no number that changes from look to look; its reason is a word of the
// catalogue. Plan, controller and command line need no change: they go through the list.
//
// Files: gate.go the list and the decision, nodes.go the checks of single nodes,
// input.go the facts, risk.go accepted risks, checks*.go the checks.
//
// Input: Input. Output: Result. In a large cluster the caller keeps the NodeFindings of
// one decision and passes them in to the next; the gate itself remembers nothing.
// Callers: the controller; `refit accept` and `refit gate` for the names.
package gate
