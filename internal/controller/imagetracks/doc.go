// Package imagetracks follows ImageTracks: it looks at registries and bundles, lets
// package track decide, brings an approved digest to the nodes, and has
// the workloads take it one after the other.
//
// Promise: everything that is remembered is in the track's status, and is
// written before anything is done: a controller that was killed goes on where
// the status says. A look that finds nothing new writes nothing. A workload is
// changed only under the resource version that was looked at, only in namespaces
// where refit was given the right to, and never if a GitOps tool owns it. Pods
// go by their workload's own strategy or through the Eviction API; none is
// deleted. Credentials stay in the process.
//
// Inputs: ImageTracks, workloads, pods, budgets, NodeUpdates, Contents, bundle
// headers, registries. Outputs: ImageTrack status, the PinnedImageSet
// track-NAME, the ConfigMap refit-nodes/track-NAME, digests in workloads. Caller:
// the controller's wiring.
package imagetracks
