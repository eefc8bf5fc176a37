// Package forecast predicts a rollout: its order, its pauses, its disruptions, and when it
// will be done.
//
// Promise: pure; no part of the plan, which is approved by its digest: a pool may be
// changed at any time, and time is never approved. Times are learned from this cluster's
// own nodes; before the first update they are those of refit's lab, and say so.
//
// Input: rollout.Input. Outputs: Outline (sentences), Predict (blockers that only
// wait), Estimate. Callers: controller/clusterupdates, the command line.
package forecast
