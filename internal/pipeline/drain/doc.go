// Package drain decides what happens to the pods of a node that is drained: evict, wait,
// leave, or refuse with a reason. Before any node changes, it reports budgets that can
// never be met.
//
// Promise: pure. The rules are those of `kubectl drain` without --force: DaemonSet pods,
// mirror pods, finished pods and refit's own pods stay. A pod that no controller would
// make again is evicted only if a person allows it. Data in emptyDir is lost with the pod,
// and the decision names such pods. refit never deletes a pod: a pod that cannot be
// evicted is refused with the budget, what it allows, and the fix.
//
// Files: drain.go decides, explain.go explains it (one row for each pod), preflight.go
// checks the pods of all nodes of a plan.
//
// Input: pods with the budgets that protect them. Output: Decision, rows,
// blockers, in a fixed order. Callers: the controller, which evicts through the
// Eviction API; `refit explain node/NAME`.
package drain
