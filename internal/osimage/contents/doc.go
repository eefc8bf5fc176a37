// Package contents compares what two images have in them, and says which differences
// reach a node without booting.
//
// Promise: pure but for the readers it is given. Layers that both images have, from the
// bottom up, are never read. Of the others every byte is compared with its digest, unless
// the first difference that nobody covers ends the reading. What is not known counts as a
// difference: a path that only one image touches lies otherwise in the layers that were not
// read, an image that is too large is not compared at all. Times alone are no difference,
// nor is what an update of a node does not apply (/var, /run, /tmp and the kernel's own).
// Of a directory that only one image's own layers name, and that lies on the way to
// something else, mode and owner are taken to be as they were if they are 0755 of root.
//
// Inputs: two Images (manifest and readers), Limits, what is covered. Outputs: a Result with
// the changed paths; Live has the files that an agent writes. Callers:
// internal/controller/osimages. Example:
//
//	r, err := contents.Compare(was, is, contents.Default(), contents.Rules{Pool: rules}.Covers)
package contents
