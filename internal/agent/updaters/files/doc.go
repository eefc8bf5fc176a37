// Package files brings files and systemd units of a node to what its rendered
// configuration says.
//
// Promise: what was there before is kept before anything is changed, with its
// owner and mode, also when it was not refit's; Undo puts it back, and leaves
// alone what somebody else has changed since. Paths that belong to others
// (kubeadm, etcd, the runtime, refit) are refused, also behind symbolic links.
// Units that must reload or restart are written down before the first file is
// changed, so that a kill in between forgets none. A unit is done when systemd
// says that it is in its state.
//
// Inputs: Host, the step's configuration. Outputs: files and units of the node.
// Callers: run; the agent's view of its node (Fields).
package files
