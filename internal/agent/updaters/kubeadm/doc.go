// Package kubeadm runs `kubeadm upgrade apply` on the first control-plane node
// and `kubeadm upgrade node` on every other.
//
// Promise: kubeadm runs in a systemd unit of its own, so that the agent may die meanwhile.
// Its output is in the journal and in a log file, its exit status in a result file. It
// starts only when the node is settled: the API server answers, and static pods run what
// their manifests say. This holds for a retry too, since a failed kubeadm returns before the
// kubelet has rolled the pods back. Nothing is forced: preflight checks hold, except
// SystemVerification on cgroup v1, which only says that cgroup v1 is old. Checks that
// refuse change nothing and are repeated a few times: a runtime that was just killed is
// back soon. Done means that kubeadm succeeded and the manifests have the target's version.
//
// Before the first start on a node with an etcd member, the updater asks the other members
// whether they keep the quorum. It also writes a snapshot into the run's rollback directory
// and compares it with etcd's own hash: without a snapshot kubeadm does not start. refit
// never restores one; that is for an administrator. After success the updater removes what
// this run's kubeadm left in /etc/kubernetes/tmp, and nothing else. A control plane does
// not return to an earlier minor version.
//
// ControlPlaneUpdater is the step "control-plane": it replaces the static pods of a
// control-plane node together, where `kubeadm upgrade` replaces one after another and
// waits for each through the API server that it restarts. kubeadm still
// runs its preflight checks, writes the manifests (by a dry run into a staging directory)
// and renews the certificates. The step "kubeadm" then runs all its other phases.
// While the old control plane serves, everything is prepared. Then one Exchange runs in a
// unit of its own. It stops the kubelet, ends the old pods, renames manifests and kubelet
// into place in the order in which kubeadm replaces them, and starts the kubelet. The API server
// ends first: etcd's restart cuts off none of its requests. Where other nodes have API servers,
// it has more time for that.
// If the new API server does not serve in time, a second Exchange restores the old files; a
// newer etcd that answers stays, as with kubeadm. After the new API server has served,
// nothing is restored.
//
// SettleUpdater waits until the node is settled: the API server answers, every static pod
// runs what its manifest requires, and the kubelet is healthy. The API server must also
// report the node Ready at the wanted version. All this must hold for some seconds without a break.
// Shortly after a kubelet swap on a control plane the kubelet restarts all static pods,
// when the node was already Ready.
//
// Inputs: Host, payload kubeadm. Outputs: the node's static pods and the kubelet's
// configuration; what is not settled, in words. Caller: the engine.
//
// Size: both steps share kubeadm's commands, the snapshot of etcd, the manifests and the
// wait for static pods; apart they would share their unexported state.
package kubeadm
