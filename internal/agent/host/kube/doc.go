// Package kube reads the state of a node's Kubernetes components. It reads the node's name in its
// certificate, the kubelet's version, health, eviction thresholds and image pull records, and the
// runtime's socket. It also reads static pod manifests, kubeadm's version, and the certificates of
// the control plane and the kubelet.
//
// Promise: it only reads. Of a key it reports only whether it belongs to its
// certificate.
//
// Inputs: paths (Paths; the zero value is kubeadm's layout), certificate names as
// `kubeadm certs renew` uses them. Outputs: plain values. Callers: the agent's wiring,
// the updaters.
package kube
