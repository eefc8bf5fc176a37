// Package queue paces reconciles and their writes: it debounces events into one request,
// backs off after errors, throttles writes that grow with the cluster, and runs writes in
// parallel.
//
// Promise: many events make one reconcile, at most a second later. In a small cluster
// every write is due at once; in a large one progress and estimates are due at most every
// few seconds. A state change never asks the throttle. At most MaxParallel writes run at
// once, every item is tried, no item starts after the context has ended, and thousands of
// failures become one short error.
//
// Inputs: names of controllers, the number of nodes, the time, items. Callers: the
// reconcilers.
package queue
