// Package imagetracks follows ImageTracks: it polls registries and bundles, lets package
// track decide, prepulls an approved digest onto the nodes, and rolls it through the
// workloads one after the other.
//
// Promise: all state is in the track's status and is written before any action, so a
// restarted controller resumes there. A reconcile without news writes nothing. A workload
// is changed only under the resource version that was read, only in namespaces that
// granted refit the right to, and never if a GitOps tool owns it. Pods are replaced by
// their workload's own strategy or through the Eviction API; none is deleted. Credentials
// stay in the process. The node's agent replaces static pods: one run in its
// NodeUpdate, one node at a time, and never over an unfinished run of a ClusterUpdate. The
// name of a run is unique for image, time and try. A PinnedImageSet track-NAME of another
// owner is an error. Node progress counts only reports about the current list.
//
// An image of a repository with a rule for signatures is blocked until the registry has a valid
// one; a registry that does not answer is no proof.
//
// A mark of a node is counted in the status until it is gone.
//
// Size: polling, prepulling, rolling and marking are steps of one turn of one track, and write
// its status together.
//
// Files: observe.go polls, signatures.go verifies, prepull.go the nodes' images, apply.go workloads, staticpods.go
// static pods, batches.go how many pods at once, marks.go marks of nodes, status.go the status. Inputs: ImageTracks, workloads, pods, budgets,
// NodeUpdates, ClusterUpdates, Contents, bundle headers, registries. Outputs: ImageTrack
// status, the PinnedImageSet track-NAME, the ConfigMap refit-nodes/track-NAME, Jobs,
// digests in workloads, NodeUpdate.spec.run. Caller: internal/controller.
package imagetracks
