// Package run runs the steps that a node is permitted to run, and remembers on
// disk how far it has come.
//
// Promise: the start and the end of every step are in the journal, synced,
// before anything else happens. A run (UID and attempt) never runs twice; a run
// that was cut off at any line goes on by observing the node; a run whose plan
// or steps are others than those it began with is stopped with PlanChanged. It
// needs no API server: a result waits until it can be reported. Succeeded means
// that every step was observed done once more at the end.
//
// Inputs: what is permitted (v1alpha1.NodeRun), updaters, payloads. Outputs:
// v1alpha1.NodeRunStatus through a callback, the journal. Caller: the agent's
// wiring.
package run
