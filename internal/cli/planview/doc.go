// Package planview gathers the view of a plan: the plan, verified by its digest,
// its cost on the nodes, its rollout, and how long the API server was unavailable
// the last time.
//
// Promise: it only reads. Input: a ClusterUpdate. Output: render.PlanView.
// Callers: refit plan, apply, rollback.
package planview
