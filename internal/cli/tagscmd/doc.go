// Package tagscmd is `refit tags`: which of two tags is newer, what a publisher
// may push, what may be deleted, and what a cluster runs of it.
//
// Promise: standard output carries only the answer; the first word of a verdict
// is fixed and stands alone, so that scripts read it; nothing is written to a
// registry. One file per command; the group is put together in tags.go.
//
// Inputs: arguments, files, registries. Outputs: tables, JSON, exit codes.
// Callers: internal/cli.
//
//	refit tags compare 2.6.2-rev10-b1.1 2.6.2-rev9-b1.1
package tagscmd
