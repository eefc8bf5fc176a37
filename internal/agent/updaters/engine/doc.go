// Package engine runs the steps that a node is permitted to run, and records its progress on
// disk.
//
// Promise: the start and the end of every step are in the journal, synced, before anything
// else happens. A run (UID and attempt) never runs twice. An interrupted run continues by
// observing the node. A run whose plan or steps have changed since it started stops with
// PlanChanged. The engine needs no API server: a result waits until it can be reported.
// Succeeded means that every step was observed done once more at the end.
//
// Every line of a journal has a checksum and a number. A torn end is skipped. Any other
// damage stops that run, and no other, with JournalCorrupt: it does not continue, start
// again or undo until an administrator requests the next attempt (refit retry). While a
// journal cannot be written or read, the run waits, with the reason in the status. Journals
// are ordered by the number in their name, and durations are monotonic: setting the clock
// changes neither what runs nor what is kept.
//
// Before a step that can cut the node off, the engine records a deadline and the node's state.
// If the node is not well for that long, the engine undoes the run by itself, last step first,
// and the run fails with UndoneByDeadline (deadline.go). Only time counts in which the agent
// runs and the node is not well, in all processes.
//
// Inputs: the permitted run (v1alpha1.NodeRun), updaters, payloads, the node's Health.
// Outputs: v1alpha1.NodeRunStatus through a callback, the journal. Caller: the agent's wiring.
package engine
