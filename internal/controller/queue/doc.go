// Package queue paces and measures reconciles and their writes: it debounces events into one
// request, backs off after errors, throttles writes that grow with the cluster, and runs writes
// in parallel.
//
// Promise: many events make one reconcile, at most a second later. In a small cluster
// every write is due at once; in a large one progress and estimates are due at most every
// few seconds. A state change never asks the throttle. At most MaxParallel writes run at
// once, every item is tried, no item starts after the context has ended, and thousands of
// failures become one short error.
//
// Times measures what a reconcile takes without the time in which at least one of its requests
// to the API server was running. It is the time that this process itself needs to read caches,
// compare and format: the part that grows with the number of nodes.
//
// Inputs: names of controllers, the number of nodes, the time, items, reconcilers and the
// transport of their clients. Output: the histograms refit_decision_seconds and
// refit_decision_processor_seconds by controller. Callers: the reconcilers.
package queue
