// Package basefinder finds the base of an OS image in the bundles that nodes have, for a site
// without a registry.
//
// Promise: a base is found by its digest alone, and only in a bundle that agents serve,
// so in one that is allowed. Of it only manifests and configurations are read, a few
// kilobytes, from any node that has them, each compared with its digest; never a layer.
// That a base is not there is a sentence with what cures it; an error is only what the
// API server did not answer.
//
// Inputs: NodeUpdates, the catalogues and small blobs of bundles (controller/bundlefiles).
// Output: a Base, which package appendlayer builds on. Callers: osimages and its
// building.
package basefinder
