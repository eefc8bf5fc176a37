// Package kube is what a node's Kubernetes components say of themselves: the
// node's name in its certificate, the kubelet's version, health and eviction
// thresholds, where its runtime listens, what it
// noted of pulled images, the static pods' manifests, kubeadm's version.
//
// It only reads. Inputs: paths (Paths; the zero value is kubeadm's layout).
// Outputs: plain values. Callers: the agent's wiring, the updaters.
package kube
