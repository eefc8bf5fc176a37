// Package buildjob makes the Job that builds a Containerfile with buildah, in the
// tightest pod that the cluster lets build.
//
// Promise: pure, and no pod is ever privileged, mounts a path of its node, shares a
// namespace of it, or gets a token of the API. Variants are those that were seen to
// build (and to fail) on containerd and CRI-O; which one is taken, and why tighter
// ones are not, is said. What a build was asked to do and cannot ends the Job at
// once; faults of the surroundings are tried again. The digest comes back as the
// container's last message, so nothing has to be handed over by a third object.
//
// Inputs: what the cluster allows, the Containerfile, where to push. Outputs: a
// ConfigMap and a Job, and what became of them. Callers: internal/controller/osimages.
// Example:
//
//	v, err := buildjob.Pick(facts, nil)
//	job, files := buildjob.Make(v, buildjob.Build{Name: "edge-1a2b", Containerfile: text})
package buildjob
