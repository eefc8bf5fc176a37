// Package kubeletpull has kubelets fetch images that need credentials, before a
// workload is restarted with them.
//
// Why so: a node's agent reads no Secret, and a registry's credentials in
// something that a node can read would be there for whoever has the node. The
// kubelet has a way of its own that is as wide as needed: a pod that is bound to
// the node names the Secret, and only while it is there the API server lets that
// node read it. It is the Secret with which the node fetches the workload anyway.
// And what the kubelet fetched itself it also lets pods use that have those
// credentials (KEP-2535), which is not so for what others put into the runtime.
//
// Promise: refit names Secrets and reads none. Of the image nothing runs: the
// container's command does not exist, as a user without rights. A Job per image
// and node, which its own deadline and time to live remove: refit deletes nothing,
// and needs no right to. It is made only in the namespace where refit may change
// the workloads anyway, or in refit's own for the track's own secret, and only if
// the node has said that there is room.
//
// Inputs: the images, the nodes and what they report. Outputs: Jobs. Caller:
// controller/imagetracks, and controller/osimages for OS images.
package kubeletpull
