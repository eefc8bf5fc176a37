// Package planview gathers what is shown of a plan: the plan itself, checked
// against its digest, and beside it what it takes on the nodes, how it will be
// rolled out, and how long the API server was away the last time.
//
// Promise: it only reads. Input: a ClusterUpdate. Output: render.PlanView.
// Callers: refit plan, apply, rollback.
package planview
