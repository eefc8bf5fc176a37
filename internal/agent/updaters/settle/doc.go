// Package settle waits until a node has come to rest after a change: the API
// server answers, every static pod runs what its manifest says, the kubelet is
// healthy, and the API server calls the node Ready at the wanted version, all
// of it for some seconds without a break.
//
// The break matters: shortly after a kubelet was swapped on a control plane it
// restarts all static pods, when the node has already been called Ready.
//
// Inputs: Host. Outputs: what is not settled, in words. Callers: run (as the
// updater "settle"), kubeadm (before it starts, and before a retry: a manifest
// rollback takes longer than kubeadm waits).
package settle
