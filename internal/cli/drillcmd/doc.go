// Package drillcmd is `refit drill`: would a node come back by itself after a power
// cut, and, if asked, the proof of it.
//
// Promise: what it says beforehand is decided by package pin from what the cluster
// knows; nothing is changed without --run and a yes. A run is begun only on a node
// that would come back.
//
// Inputs: Node, pods, NodeUpdates, Contents. Outputs: a view, an annotation on the
// node's NodeUpdate. Caller: package cli.
package drillcmd
