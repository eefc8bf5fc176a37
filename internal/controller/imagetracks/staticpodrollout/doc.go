// Package staticpodrollout has the agents of nodes give static pods the image that a track
// has approved: it reads how far each node is, and permits one node at a time.
//
// Promise: what a node may do is one run in its NodeUpdate, under a name that
// tells this image, this moment and this try apart from all others: permitting it
// twice is permitting it once. It is written only over what was looked at. Of a
// ClusterUpdate nothing is replaced that is not over. It decides nothing.
//
// Inputs: targets of kind StaticPod, NodeUpdates, Nodes, ClusterUpdates, other
// tracks. Outputs: track.NodePods, track.Gate, NodeUpdate.spec.run. Caller:
// controller/imagetracks.
package staticpodrollout
