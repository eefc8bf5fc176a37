// Package nodeindex indexes all nodes with their NodeUpdates, and what reconcilers
// derive from them. A reconcile of 30,000 nodes then copies and recomputes only what
// changed.
//
// Promise: the process has one Index. The cache feeds it once per event, and a refresh
// costs what changed since the last one. Each reconciler has a Reader, which wakes it for
// the changes that it asked for. A View never changes, so that readers share it. It shows
// the newest known state of each object: from the cache, or from a recent answer of the
// API server until the cache has caught up. An answer counts for a bounded time only, so
// a cache that reverts (a restored etcd) wins in the end. Heartbeats measures with this
// process's clock, because the clock of a node may be wrong.
//
// Inputs: the manager's cache, answers of the API server. Outputs: View, Row, Heartbeats.
// The cache shares the objects; do not change them. Callers: the reconcilers.
package nodeindex
