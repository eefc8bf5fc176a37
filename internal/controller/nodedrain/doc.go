// Package nodedrain marks and cordons the nodes of an update, takes them out of load
// balancers, evicts their pods as package drain decides, and undoes the rest afterwards.
//
// Promise: a mark and its cordon, or its label for load balancers, are one write, so neither
// is without its mark. A write is based on the node in the API server and is refused if it
// changed since. A cordon or label of another owner stays. Pods are evicted through the
// Eviction API and never deleted, so every disruption budget holds. Nothing here waits; the
// caller retries. A refusal names pod, owner, budget and the disruptions that it allows.
//
// Inputs: nodes, marks, a drain.Decision. Outputs: verdicts, the drain progress of a
// status. Caller: controller/clusterupdates.
package nodedrain
