// Package scenario plays the main story on a lab, as its users would: a
// cluster with a running workload, a bundle of the next release on a stick in
// one node, approval, preparation, update. `refit-lab demo` plays it straight
// through; the end-to-end tests play it with faults.
//
// Promise: every number in the Result was measured from outside refit: pods
// and nodes through the API server, images and pins through each node's CRI,
// packets in the lab's switch, availability by polling. Nothing is taken from
// what refit says of itself but the bytes by source, which only it knows.
//
// Inputs: a lab, the refit binaries beside the running program. Outputs:
// Result. Callers: the command line (refit-lab demo), test/e2e.
package scenario
