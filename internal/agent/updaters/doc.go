// Package updaters defines an updater: code that changes one part of a node in place. Each
// updater is a package below this one, package engine runs them, and package updatertest is
// the conformance test that every updater passes.
//
// Promise of every updater: it observes the node and drives it towards the step's target.
// It may be called any number of times, also after a crash at any line, and the end is the
// same. It reports done only for what it has observed. A failure has a reason, without
// secrets and in words that do not change.
//
// Inputs: Task. Outputs: Observation, Result. Caller: engine.
package updaters
