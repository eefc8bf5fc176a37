// Package peerserver is what a node gives its neighbours and takes of them: the
// shelves of its library on the wire, within the bandwidth that it may use.
//
// Promise: only bundles that are served are seen; only whoever is accepted at that
// moment is answered; what is sent and what is taken stay below the limit each.
//
// Inputs: the library, the node's identity, who is accepted, a limit. Outputs: a
// running chunk server, clients, chunks on the shelf. Callers: the agent; bench.
package peerserver
