// Package reconcilemetrics measures how long a reconcile takes to decide.
//
// Promise: the duration of a reconcile does not include the time in which at least one
// request to the API server was running. It is the time that this process itself needs to
// read caches, compare and format. This is the part that grows with the number of nodes.
//
// Input: a reconciler and the transport of its clients. Output: the histogram
// refit_decision_seconds by controller. Caller: internal/controller.
package reconcilemetrics
