// Package reconcilemetrics measures how long a look takes to decide.
//
// Promise: what is measured is a look from its beginning to its end without the
// time in which at least one request to the API server was under way: what this
// process needs by itself, with everything it reads from caches, compares and
// puts into words. It is what grows with the number of nodes.
//
// Input: a reconciler and the transport of its clients. Output: the histogram
// refit_decision_seconds by controller. Caller: internal/controller.
package reconcilemetrics
