// Package desired is what a node was told last: its NodeUpdate's spec and the
// Contents that it names, compared with their names, and kept on disk so that
// the node works on without the API server.
//
// Inputs: a NodeUpdate, Contents by name. Output: State. Caller: the agent's
// wiring.
package desired
