// Package apidowntime measures how long the API server does not answer while nodes
// move.
//
// Promise: it asks once a second on a connection of its own each time, so that a
// connection that died with the old API server is not taken for one that is
// away; it measures from where the controller runs, only while it is told that
// nodes move. What was measured and not written is lost with the process.
//
// Input: the configuration of the API server. Output: Reading. Caller:
// controller/clusterupdates, which adds it to the ClusterUpdate's status.
package apidowntime
