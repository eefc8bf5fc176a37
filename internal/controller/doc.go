// Package controller wires the cluster half of refit: caches, leader election,
// the controller's key, events, metrics, health.
//
// Promise: it may be killed at any line and started again; it keeps nothing but
// caches. While the API server is away it waits and goes on afterwards. One
// process leads at a time; it gives the leadership back when it ends, and a
// process that was killed takes it up again at once, because its identity is
// that of its pod.
//
// Input: Options. Callers: cmd/refit-controller, the lab's simulated cluster,
// tests. The work is in fleet (what every node must know) and updates (moving
// nodes).
package controller
