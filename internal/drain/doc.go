// Package drain decides what happens to the pods of a node that is emptied:
// evict, wait, leave, or refuse with the explanation as data.
//
// Promise: pure. It knows refit's own rules, which are those of `kubectl drain`
// without --force: DaemonSet pods, mirror pods, finished pods and refit's own
// pods stay; a pod that nothing would make again is never evicted unless it
// says so itself. Data in emptyDir goes with the pod, and the decision says so.
//
// Input: the node's pods. Output: Decision, in a fixed order. Callers: the
// controller, which evicts through the Eviction API and never deletes a pod.
package drain
