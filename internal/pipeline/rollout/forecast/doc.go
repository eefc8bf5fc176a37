// Package forecast says beforehand how a rollout will go: in which order, with
// which pauses, what will not be smooth, and when it will be done.
//
// Promise: pure; no part of the plan, which is approved by its digest: a pool may
// be changed at any time, and time is never approved. What is said of time was
// learned from this cluster's own nodes, or is not said.
//
// Input: rollout.Input. Outputs: Outline (sentences), Foresee (verdicts that only
// wait), Estimate. Callers: controller/clusterupdates, the command line.
package forecast
