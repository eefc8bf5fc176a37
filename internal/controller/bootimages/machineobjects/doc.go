// Package machineobjects reads and annotates the objects of machine managers: Cluster
// API, OpenShift and Karpenter. They are unstructured, read from the API server, each
// kind once per reconcile.
//
// Promise: a kind that the cluster does not serve is absent, not an error; a failed
// read is an error and never an empty list. A node belongs to a machine only if nothing
// contradicts it: a node of another cluster with the same name is not matched. The only
// write is refit's own condition on a Machine, by server-side apply without force. It is
// removed when the machine has joined or its image is new enough.
//
// Inputs: an uncached client, Nodes, messages about machines. Outputs: listings,
// machines with the MachineSources that they come from, the region of a manager, refused
// joins, conditions and events. Caller: controller/bootimages.
package machineobjects
