// Package fsutil has operations on a node's file systems: free space, sync, and the
// atomic replacement of a file.
//
// Promise: Replace leaves either the old file or the whole new one under the
// name, also after a power cut. Inputs: paths. Outputs: bytes, errors with the
// path. Callers: the agent halves, the updaters.
package fsutil
