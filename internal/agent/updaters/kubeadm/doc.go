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
// Before the first start on a node with a member of etcd, the other members are
// asked whether they keep the quorum, and a snapshot is written into the run's
// rollback directory and compared with etcd's own hash; without one kubeadm is not
// started. refit restores none: it is for a person. What kubeadm itself leaves in
// /etc/kubernetes/tmp is removed when it has succeeded, only what this run made.
// A control plane does not go back to an earlier minor version.
//
// SettleUpdater waits until the node is settled: the API server answers, every static
// pod runs what its manifest requires, the kubelet is healthy, and the API server
// reports the node Ready at the wanted version, all for some seconds without a break.
// The break matters: shortly after a kubelet swap on a control plane the kubelet
// restarts all static pods, when the node was already Ready.
//
// Inputs: Host, payload kubeadm. Outputs: the node's static pods and the kubelet's
// configuration; what is not settled, in words. Caller: the engine.
package kubeadm
