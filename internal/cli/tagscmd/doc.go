// Package tagscmd is `refit tags`: compare and sort tags, plan pushes and deletions,
// and check what a cluster runs.
//
// Promise: standard output has only the result; its first word is fixed for scripts.
// It writes nothing to a registry. One file per command; tags.go has the group.
//
// Inputs: arguments, files, registries. Outputs: tables, JSON, exit codes.
// Callers: internal/cli.
//
//	refit tags compare 2.6.2-rev10-b1.1 2.6.2-rev9-b1.1
package tagscmd
