// Package kubeletpull has kubelets fetch images that need credentials, before a
// workload is restarted with them.
//
// Why: a node's agent reads no Secret, and an attacker on the node could read credentials
// that the agent can read. The kubelet has a narrower way. A pod that is bound to the node
// names the Secret, and only while the pod exists the API server lets that node read it.
// The node fetches the workload with the same Secret anyway. The kubelet also lets pods
// with those credentials use an image that it fetched itself (KEP-2535), but not an image
// that another program imported into the runtime.
//
// Promise: refit names Secrets and reads none. Nothing of the image runs: the container's
// command does not exist, and its user has no rights. There is one Job per image and node.
// Its own deadline and time to live remove it, so that refit needs no right to delete. A
// Job is created only where refit may change the workloads anyway, or in refit's own
// namespace for the track's own secret, and only if the node reports enough space.
//
// Inputs: the images, the nodes and what they report. Outputs: Jobs. Caller:
// controller/imagetracks, and controller/osimages for OS images.
package kubeletpull
