// Package externalupdaters speaks with external updaters about plain nodes, in the words of
// Cluster API's in-place update hooks.
//
// Promise: no reconcile waits for an updater. Calls return the last answer and ask in the
// background, once at a time for a node and question, within the updater's own deadline.
// The caller trusts only a certificate that the updater's CA bundle signed. Of a response
// body it logs and repeats only the sentence that is meant for people. It sends the same
// request until the updater reports success; the node's agent confirms the result. Only
// the last answers are cached: after a restart it asks again.
//
// The machine of the hooks is an object of kind Node (Object): metadata.name, and
// spec.fields with the paths and values of a node, see package updateplan.
//
// Inputs: Updaters with nodes: true, nodes as the planner sees them, steps. Outputs:
// updateplan.Offer, JobAnswer. Caller: controller/clusterupdates.
package externalupdaters
