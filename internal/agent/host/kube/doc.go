// Package kube reads what a node's Kubernetes components state about themselves: the
// node's name in its certificate, the kubelet's version, health and eviction thresholds,
// the runtime's socket, the kubelet's image pull records, static pod manifests,
// kubeadm's version, and the certificates of the control plane and the kubelet.
//
// Promise: it only reads. Of a key it reports only whether it belongs to its
// certificate.
//
// Inputs: paths (Paths; the zero value is kubeadm's layout), certificate names as
// `kubeadm certs renew` uses them. Outputs: plain values. Callers: the agent's wiring,
// the updaters.
package kube
