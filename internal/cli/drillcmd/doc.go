// Package drillcmd is `refit drill`: predict whether a node recovers by itself after a
// power cut, and prove it on request.
//
// Promise: package pin makes the prediction from objects of the cluster. Without --run
// and a yes nothing changes. A run starts only on a node that would recover.
//
// Inputs: Node, pods, NodeUpdates, Contents. Outputs: a view, an annotation on the
// node's NodeUpdate. Caller: package cli.
package drillcmd
