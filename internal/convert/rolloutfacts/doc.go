// Package rolloutfacts converts API objects to the values of a rollout: pools with their
// windows, marks and records on nodes, results of runs.
//
// Promise: pure; no client, no clock. A value that cannot be read (an unknown time zone, a
// truncated mark) never means "no limit": the pool starts nothing, the node is marked again.
//
// Inputs: API objects, Nodes. Outputs: rollout's values. Callers: controller/clusterupdates,
// and the command line, which shows how a plan will roll out.
package rolloutfacts
