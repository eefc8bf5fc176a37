// Package poolstatus counts the nodes of every UpdatePool.
//
// Promise: counts are of what is seen; a status is written only if it differs. A
// window that cannot be read, and a node that is in two pools, are conditions of
// the pool.
//
// Input: Look. Caller: controller/clusterupdates, once in every look at everything.
package poolstatus
