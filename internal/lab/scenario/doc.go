// Package scenario runs the main use case on a lab: a cluster with a workload, a bundle
// of the next release on a stick in one node, approval, preparation, update.
// `refit-lab demo` runs it without faults, the end-to-end tests with faults.
//
// Promise: every number in the Result was measured outside of refit. Pods and nodes
// come from the API server, images and pins from each node's CRI, packets from the lab's
// switch, availability from polling. Only the bytes by source come from refit itself.
//
// Inputs: a lab, the refit binaries next to the running program. Outputs:
// Result. Callers: the command line (refit-lab demo), test/e2e.
package scenario
