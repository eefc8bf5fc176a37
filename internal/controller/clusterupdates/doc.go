// Package clusterupdates reconciles ClusterUpdates: plan, gate, rollout.
//
// Promise: every reconcile derives its decisions from API state, so a crash at any line loses
// nothing. The controller records an action before it does it: the phase Updating with the
// plan's digest before it touches the first node, the mark on a node before it evicts pods. One
// update moves nodes at a time. Only refit's own cordons are removed. A node is done when it
// was observed at its target, not when its steps have ended.
//
// An update through hops returns to the gate after each hop; its plan stays the one that was approved.
//
// Size: plan, gate and rollout of an update are steps of one reconcile, on one snapshot and its indexes.
//
// Files: gather.go reads; prepare.go and advance.go call the pure packages (updateplan, gate,
// rollout, drain); actions.go acts, with package nodedrain for pods; status.go writes the
// status. hops.go leads from one hop to the next. Caller: internal/controller.
package clusterupdates
