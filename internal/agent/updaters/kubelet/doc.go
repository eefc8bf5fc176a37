// Package kubelet replaces the kubelet (and kubectl beside it) of this node:
// replace in one stroke while the old one runs, restart by one order to systemd, see
// it run.
//
// Promise: done means that the running process is the new file and healthy. The
// old files are kept in the run's rollback directory; Undo puts them back.
// Pods go on while the kubelet is away. A file that cannot be replaced leaves the
// old kubelet running.
//
// Inputs: Host, payloads kubelet and kubectl. Outputs: the node's kubelet.
// Caller: run.
package kubelet
