// Package osimage decides how a pool gets its OS image: which build is wanted, by
// which builder, whether there is one already, and what may be thrown away.
//
// Promise: pure. A build's name is the hash of its inputs, so the same inputs are
// the same build. An image is built again only if the registry says that it is
// gone: one that denies or is away makes it wait. What ended never changes. No image
// is garbage that a node has booted, is to boot, or would go back to.
//
// Inputs: an OSImage's words, the base's digest, the hash of what goes into the
// image, the builds there are, what the registry said. Outputs: a Decision with
// its reason; names of builds to delete. Callers: internal/controller/osimages.
// Example:
//
//	d := osimage.Decide(osimage.Situation{Wanted: inputs, Builds: builds, Registry: osimage.Present})
package osimage
