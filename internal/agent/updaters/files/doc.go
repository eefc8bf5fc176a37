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
// RebootUpdater restarts the machine once, after files that are read at boot changed.
// The boot that must end is on disk before the restart; done means that another boot
// was observed. Undo has nothing to restore: restored files are read at the next boot.
//
// Inputs: Host, the step's configuration. Outputs: files and units of the node.
// Callers: the engine, the
// agent's node facts (Fields).
package files
