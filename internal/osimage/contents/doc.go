// Package contents compares what two images have in them, and says which differences
// reach a node without booting.
//
// Promise: pure but for the readers of layers. Compare never reads the layers that both images
// share from the bottom up. It verifies every byte of the others against the digest, unless it
// stops at the first difference that no rule covers. The unknown counts as a difference: a path
// that only one image's own layers have may differ in the shared layers, and too large images
// are not compared. Modification times do not count, nor do the directories that an update of
// a node does not apply (/var, /run, /tmp and those of the kernel). A parent directory that
// only one image's own layers name counts as unchanged if it is 0755 and owned by root.
//
// Inputs: two Images (manifest and readers), Limits, a function that covers changes. Outputs:
// a Result with the changed paths; Live has the files that an agent writes. Callers:
// internal/controller/osimages. Example:
//
//	r, err := contents.Compare(was, is, contents.DefaultLimits(), contents.Rules{Pool: rules}.Covers)
package contents
