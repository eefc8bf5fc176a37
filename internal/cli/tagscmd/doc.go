// Package tagscmd is `refit tags`: compare and sort tags, plan pushes and deletions,
// check what a cluster runs, and decide about the candidates of an ImageTrack.
//
// Promise: standard output has only the result; its first word is fixed for scripts. The
// commands write nothing to a registry, and to a cluster only specs of ImageTracks. A
// decision is for the digest that was shown, and is refused if the track changed since.
// Kinds that it may not read are named on standard error and left out. One file per
// command; tags.go has the group.
//
// Inputs: arguments, files, registries, a cluster or a dump of it. Outputs: tables, JSON,
// exit codes.
// Callers: internal/cli.
//
//	refit tags compare 2.6.2-rev10-b1.1 2.6.2-rev9-b1.1
package tagscmd
