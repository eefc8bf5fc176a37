// Package clusterupdates carries ClusterUpdates out: plan, gate, rollout.
//
// Promise: everything is derived from API state each time, so that a crash at
// any line costs nothing. What is about to be done is written down first: the
// phase Updating, with the plan's digest, before the first node is touched; the
// mark on a node before its pods are evicted. One update moves nodes at a time.
// Only our own cordons are removed. A node is called done when it was observed
// at its target, never because something ended.
//
// Shape: gather.go reads, prepare.go and move.go ask the pure packages (update,
// gate, rollout, drain), actions.go does (package evict with the pods), status.go tells. Caller:
// internal/controller.
//
// Size: one reconciler over one world; whatever can be told apart from it is in a
// package beside it already.
package clusterupdates
