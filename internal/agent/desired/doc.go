// Package desired is the desired state of a node: the spec of its NodeUpdate and the Contents
// that the spec names. It verifies each Content against its name, and stores the state on disk
// so that the node works without the API server.
//
// Inputs: a NodeUpdate, Contents by name. Output: State. Caller: the agent's
// wiring.
package desired
