// Package workloadcluster requests that refit in a machine's own cluster updates the machine's
// node, and reads the result there.
//
// Promise: it keeps no state. The request is a ClusterUpdate limited to the node; its name
// identifies Machine and version, and the reply follows from it, the Node and the agent's
// observation. Any number of calls, also from two replicas, create one. It replies done only
// for a node that was observed at the version. It uses only a bundle whose digest a person has
// set. It needs to read Nodes, NodeUpdates and Bundles there and to write ClusterUpdates,
// nothing else, and no Secret. It uses only the data inside a kubeconfig: one that names a
// file, a program, a proxy or another identity is refused, because the controller would resolve
// it with its own rights.
//
// Inputs: a client of the cluster, a NodeTarget. Outputs: a Reply. Caller:
// internal/controller/clusterapi.
package workloadcluster
