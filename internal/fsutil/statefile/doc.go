// Package statefile reads the small files in which a node's agent keeps its state,
// and remembers what was wrong with them.
//
// Promise: a file that is zero-filled, truncated or of another program counts as missing
// and is renamed, so that no damage keeps an agent or a kubelet down. If it cannot be
// renamed (a read-only disk) it is ignored. Problems are files below the run directory,
// until the next boot, and every process of refit on the node sees the same list.
//
// Inputs: paths, a function that decodes. Outputs: what was decoded, Problems.
// Callers: the agent's wiring, the check before the kubelet starts, the halves that
// keep records on a node.
package statefile
