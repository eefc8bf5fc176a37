// Package kubeadm runs `kubeadm upgrade apply` on the first control-plane node
// and `kubeadm upgrade node` on every other.
//
// Promise: kubeadm runs in a systemd unit of its own, so that the agent may die
// meanwhile; its output is in the journal and in a log file, its end in a
// result file. It is started only when the node is settled (the API server
// answers, static pods run what their manifests say), also for a retry: after a
// failure kubeadm returns before the kubelet has rolled the pods back. Nothing
// is forced: preflight checks hold, except SystemVerification on cgroup v1,
// which only says that cgroup v1 is old. Checks that refuse change nothing and
// are asked again a few times: a runtime that was just killed is back soon. Done means that kubeadm succeeded and
// the manifests have the target's version.
//
// kubeadm keeps a copy of the manifests and of etcd's data in
// /etc/kubernetes/tmp before it changes a control plane; refit takes no other
// snapshot of etcd and restores none. A control plane does not go back to an
// earlier minor version.
//
// Inputs: Host, payload kubeadm. Outputs: the node's static pods and the
// kubelet's configuration. Caller: run.
package kubeadm
