// Package engine runs the steps that a node is permitted to run, and remembers on
// disk how far it has come.
//
// Promise: the start and the end of every step are in the journal, synced,
// before anything else happens. A run (UID and attempt) never runs twice; a run
// that was cut off at any line goes on by observing the node; a run whose plan
// or steps are others than those it began with is stopped with PlanChanged. It
// needs no API server: a result waits until it can be reported. Succeeded means
// that every step was observed done once more at the end.
//
// Every line of a journal has a checksum and a number. A torn end is passed over;
// any other damage stops that run with JournalCorrupt and no other: it does not go
// on, does not start again and is not undone, until a person asks for its next
// attempt (refit retry). A journal that cannot be written or read is waited for,
// with the reason in the status. Journals are ordered by the number in their name,
// durations are monotonic: no clock that is set changes what runs or what is kept.
//
// Inputs: what is permitted (v1alpha1.NodeRun), updaters, payloads. Outputs:
// v1alpha1.NodeRunStatus through a callback, the journal. Caller: the agent's
// wiring.
package engine
