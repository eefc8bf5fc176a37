// Package nodeindex indexes all nodes with their NodeUpdates and what reconcilers derive
// from them, so that a reconcile of thirty thousand nodes copies and recomputes nothing
// that did not change.
//
// Promise: an update of the index costs what changed since the last one. It shows the
// newest known state of each object: from the cache, or from a recent answer of the API
// server until the cache has caught up. An answer counts for a bounded time only, so a
// cache that reverts (a restored etcd) wins in the end. A heartbeat is measured by this
// process's clock, because the clock of a node may be wrong.
//
// Inputs: the manager's cache, answers of the API server. Outputs: View, Row, Heartbeats.
// The objects are shared with the cache and must not be changed. Callers: the
// reconcilers, one index each.
package nodeindex
