// Package externalupdaters speaks with external updaters about plain nodes, in the words of
// Cluster API's in-place update hooks.
//
// Promise: nobody waits for an updater: what it said last is returned, and it is asked
// beside, once at a time for a node and question, bounded by its own deadline. Only an
// updater whose certificate its CA bundle signed is talked to, and nothing of a body is
// logged or repeated but the one sentence that is meant for people. The same request is
// sent until the updater says that it is done; whether it is, the node's agent says.
// What is remembered here is only what was said last: after a restart it is asked again.
//
// The machine of the hooks is an object of kind Node (Object): metadata.name, and
// spec.fields with the paths and values of a node, see package update.
//
// Inputs: Updaters with nodes: true, nodes as the planner sees them, steps. Outputs:
// updateplan.Offer, Word. Caller: controller/clusterupdates.
package externalupdaters
