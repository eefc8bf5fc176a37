// Package bundlefiles reads files of bundles for the controller, from the nodes that
// hold them: the cluster resources, the boot images that are wanted, manifests.
//
// Promise: what is returned has the digest that the bundle's header gives it,
// whoever sent it. Small files only; the caller bounds them. What is not known yet
// (ErrNotYet) is told apart from "the bundle has no such file" (nil).
//
// Inputs: a bundle's digest, the name of a payload, the agents that say they have
// the bundle. Output: the file and the bundle's metadata. Callers:
// controller/clusterresources, controller/bootstreams, controller/osimages.
package bundlefiles
