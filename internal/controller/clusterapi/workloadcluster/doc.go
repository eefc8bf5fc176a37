// Package workloadcluster asks refit in a machine's own cluster to move the machine's node,
// and reads there what has come of it.
//
// Promise: nothing is remembered here: the wish is a ClusterUpdate that is limited
// to the node, its name says for which Machine and version it is, and the answer
// is read from it, from the Node and from what the node's agent observed. Asked
// any number of times, also by two replicas, it makes one. It says done only of a
// node that was observed at the version; which bundle runs is one whose digest a
// person named. It needs to read Nodes, NodeUpdates and Bundles there and to
// write ClusterUpdates, nothing else, and no Secret. A kubeconfig is used for the
// data inside it only: one that names a file, a program, a proxy or another
// identity is refused, because the controller would resolve it with its own rights.
//
// Inputs: a client of the cluster, what is wanted. Outputs: a Reply. Caller:
// internal/controller/clusterapi.
package workloadcluster
