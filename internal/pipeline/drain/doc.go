// Package drain decides what happens to the pods of a node that is emptied:
// evict, wait, leave, or refuse with the explanation as data; and before any
// node is touched it says which budgets could never be met.
//
// Promise: pure. It knows refit's own rules, which are those of `kubectl drain`
// without --force: DaemonSet pods, mirror pods, finished pods and refit's own
// pods stay; a pod that nothing would make again is never evicted unless a
// person says so. Data in emptyDir goes with the pod, and the decision says so.
// Nothing here can lead to a pod being deleted: what cannot be evicted is
// refused, and the refusal names the budget, what it allows, and the cure.
//
// Files: drain.go decides, explain.go says why (one row a pod), preflight.go
// looks at the pods of the nodes of a plan.
//
// Input: pods with the budgets that protect them. Output: Decision, rows,
// verdicts, in a fixed order. Callers: the controller, which evicts through the
// Eviction API; `refit explain node/NAME`.
package drain
