// Package contents compares what two images have in them, and reports which differences
// reach a node without booting. It also reads what one image has for a node that boots it.
//
// Promise: pure but for the readers of layers. Compare never reads the layers that both images
// share from the bottom up. It verifies every byte of the others against the digest, unless it
// stops at the first difference that no rule covers. The unknown counts as a difference: a path
// that only one image's own layers have may differ in the shared layers, and too large images
// are not compared. Modification times do not count, nor do the directories that an update of
// a node does not apply (/var, /run, /tmp and those of the kernel). A parent directory that
// only one image's own layers name counts as unchanged if it is 0755 and owned by root.
//
// ReadFacts reads configurations and the headers of layers as a stream, lower layers first, and
// the content of a few small files. It unpacks nothing to a disk, and its memory is bounded for
// any image. It verifies each layer that it reads whole; of an uncompressed layer on a disk it
// reads the headers only. A malformed image is a Problem; an unreachable source is an error.
//
// Inputs: two Images (manifest and readers), Limits, a function that covers changes; an oci.Root.
// Outputs: a Result with the changed paths, Live with the files that an agent writes, and
// osimage.ImageFacts. Callers: internal/controller/osimages, internal/cli/imagecmd. Example:
//
//	r, err := contents.Compare(was, is, contents.DefaultLimits(), contents.Rules{Pool: rules}.Covers)
package contents
