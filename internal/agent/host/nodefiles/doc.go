// Package nodefiles inspects, writes and removes single files of a node.
//
// Promise: a write goes to a temporary file in the same directory, which is synced and renamed, so
// that the file has its old or its new content, never a part. No symbolic link leads into a
// refused place: the path is resolved and checked first, then opened without following links. A
// name that is itself a link is not written.
//
// Inputs: FS (a root, a rule). Outputs: State. Callers: the updaters that change
// files, the agent's view of its node.
package nodefiles
