// Package nodefiles looks at, writes and removes single files of a node.
//
// Promise: a file is written beside its place, synced and renamed, so that it is
// there as before or as wanted, never half. Symbolic links are never followed
// into a place that is refused: a path is resolved first, asked about, and
// opened without following any. A name that is itself a link is not written.
//
// Inputs: FS (a root, a rule). Outputs: State. Callers: the updaters that change
// files, the agent's view of its node.
package nodefiles
