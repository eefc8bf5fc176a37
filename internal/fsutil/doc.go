// Package fsutil is what a node's file systems are asked and told: room, sync,
// and the replacement of a file in one stroke.
//
// Promise: Replace leaves either the old file or the whole new one under the
// name, also after a power cut. Inputs: paths. Outputs: bytes, errors with the
// path. Callers: the agent halves, the updaters.
package fsutil
