// Package bundlewriter makes bundles.
//
// Promise: Create reads every blob of its sources once, checks it against its
// digest while it is copied, holds no blob in memory, and the output appears
// under its name only when it is complete and on disk. The same inputs give the
// same bytes.
//
// Inputs: sources (internal/oci), payload files, options. Output: a file as
// specified in docs/reference/bundle-format.md. Callers: the CLI, the lab.
//
// Size: every kind of source ends in one plan and is a few lines of it; apart they
// would share its unexported values.
package bundlewriter
