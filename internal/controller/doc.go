// Package controller wires the cluster half of refit: caches, leader election,
// the controller's key, events, metrics, health, logs of nodes.
//
// Promise: it may be killed at any line and restarted; it has no state but caches. It
// waits while the API server is unavailable. One process leads at a time and releases its
// lease when it ends. A process that was killed leads again at once, because its identity
// is that of its pod.
//
// Input: Options. Callers: cmd/refit-controller, the lab's simulated cluster, tests. The
// main reconcilers are nodedistribution (what every node must know) and clusterupdates
// (updating nodes).
package controller
