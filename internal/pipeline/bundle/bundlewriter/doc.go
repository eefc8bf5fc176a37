// Package bundlewriter makes bundles and writes them to media.
//
// Promise: Create reads every blob of its sources once, compares it with its digest while
// it is copied, and holds no blob in memory. The output appears under its name only when
// it is complete and on disk. The same inputs give the same bytes. Manifests that the
// controller would refuse are refused here. WriteMedium refuses a device that is in use or
// too small before it writes anything. It writes the first block last, so that an
// interrupted copy does not pass for a bundle, and reads the whole copy back from the
// medium. WriteVolume does the same with a file system that other computers read: the partition
// table is the last write. Repair writes verified bytes over damaged ones and nothing else, in place, so that a kill
// at any point leaves no more damage than there was.
//
// Inputs: sources (internal/oci), payload files, manifests, options; a bundle and a
// block device or a path. Output: a file as specified in
// docs/reference/bundle-format.md, or the same bytes on a medium. Callers: the CLI.
//
// Size: every kind of source ends in one plan and is a few lines of it; apart they
// would share its unexported values.
package bundlewriter
