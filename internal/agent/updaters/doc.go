// Package updaters says what an updater is: a part that changes one thing of
// one node in place. Each is a package below this one; package run runs them;
// package updatertest is the conformance test that every one passes.
//
// Promise of every updater: it observes the node and drives it towards the
// step's target; it may be called any number of times, also after a crash at
// any line, and ends in the same; it never says done for what is not so; a
// failure says why, without secrets and in words that do not change.
//
// Inputs: Task. Outputs: Observation, Result. Callers: run.
package updaters
