// Package nodeindex keeps all nodes and their NodeUpdates in order, so that a look
// at thirty thousand of them copies none.
//
// Promise: a look costs what changed since the last one. What it shows is the
// newest that is known of each object: as the cache has it, or as the API server
// answered a write or a read a moment ago, until the cache has caught up. An
// answer is believed for a bounded time only, so a cache that goes back (an etcd
// that was restored) wins in the end.
//
// Input: the manager's cache, answers of the API server. Output: View. The
// objects are shared with the cache: nobody changes them. Callers: the
// controller's reconcilers, one Roster each.
package nodeindex
