// Package kubelet replaces the kubelet (and kubectl) of this node: it replaces the file
// atomically while the old kubelet runs, restarts it with one order to systemd, and verifies
// that it runs.
//
// Promise: done means that the running process is the new file and healthy. The run's
// rollback directory has the old files, and Undo restores them. Pods continue while the
// kubelet restarts. A file that cannot be replaced leaves the old kubelet running.
//
// ConfigUpdater sets fields of the KubeletConfiguration in a drop-in of refit's. It does
// not touch kubeadm's file, so that kubeadm may write it again. The drop-in is in the
// kubelet's --config-dir; a kubelet without one gets a drop-in of its unit that adds it,
// derived from the command that systemd reports. Done means: the kubelet started after
// the files were written, is healthy, and reports the values itself where it answers
// /configz.
//
// Supervisor replaces the one program of a k3s, RKE2 or k0s node in the same way, as the kubelet
// there is a part of it. A server's program changes only after the distribution has saved,
// and refit verified, a snapshot of etcd. Such a server is not returned over a minor version.
// A server with SQLite is stopped for the swap: refit copies the database meanwhile, and an
// undo over a minor version restores that copy together with the program. RehearseSQLite
// restores a copy elsewhere and reads every page of it.
//
// Inputs: Host, payloads kubelet and kubectl, the step's configuration. Outputs: the
// node's kubelet, 90-refit.conf in the kubelet's configuration directory, a drop-in of
// kubelet.service. Callers: the engine, the agent's node facts (Fields).
package kubelet
