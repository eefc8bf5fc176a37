// Package plans makes plans and stores them as Contents. It also asks external updaters what
// they offer for plain nodes, and has them do their steps (ExternalUpdaters).
//
// Promise: it makes a new plan only when an input of the planner changed. A plan that it
// reads has the digest that was approved. A plan of any size is stored: one that does not
// fit into an object is split into parts, which are written before the list of them.
//
// No reconcile waits for an external updater. Calls return the last answer and ask in the
// background, once at a time for a node and question, within the updater's own deadline.
// The caller trusts only a certificate that the updater's CA bundle signed. Of a response
// body it logs and repeats only the sentence that is meant for people. It sends the same
// request until the updater reports success; the node's agent confirms the result. Only
// the last answers are cached: after a restart it asks again. It speaks the words of Cluster
// API's in-place update hooks. Their machine is an object of kind Node (Object):
// metadata.name, and spec.fields with the paths and values of a node, see package updateplan.
//
// Inputs: updateplan.Input, Contents, Updaters with nodes: true, steps. Outputs: plans with
// their digests, updateplan.Offer, ExternalAnswer. Caller: controller/clusterupdates.
package plans
