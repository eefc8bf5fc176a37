// Package files brings files and systemd units of a node to the state in its rendered
// configuration.
//
// Promise: before anything changes there is a backup of what was there, with owner and
// mode, also if it was not refit's. Undo restores it, except what others have changed
// since. Paths that belong to others (kubeadm, etcd, the runtime, refit) are refused, also
// behind symbolic links. Units that must reload or restart are on disk before the first
// file changes, so that a kill in between loses none. A unit is done when systemd reports
// its state.
//
// RebootUpdater restarts the machine once, after files that are read at boot changed.
// The boot that must end is on disk before the restart; done means that another boot
// was observed. Undo has nothing to restore: restored files are read at the next boot.
//
// Inputs: Host, the step's configuration. Outputs: files and units of the node. Callers:
// the engine, the agent's node facts (Fields).
package files
