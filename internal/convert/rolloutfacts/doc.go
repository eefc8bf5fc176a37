// Package rolloutfacts converts API objects to the values of a rollout: pools with their
// windows, marks and records on nodes, results of runs. It also makes the facts of a status
// view and of a receipt from Nodes, NodeUpdates, Bundles and ClusterUpdates.
//
// Promise: pure; no client, no clock. A value that cannot be read (an unknown time zone, a
// truncated mark) never means "no limit": the pool starts nothing, the node is marked again.
// The command line and the status page get the same facts from the same objects. The package
// is apart from convert, which the agent links: one type of core/v1 would link all of them
// into the agent.
//
// Inputs: API objects, Nodes. Outputs: values of rollout and explain. Callers:
// controller/clusterupdates, the status page, and the command line, which also shows how a plan
// will roll out.
package rolloutfacts
