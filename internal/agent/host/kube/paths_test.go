package kube

import "testing"

// The places on kubeadm's nodes, word for word: they come from the table of distributions.
func TestPathsOfKubeadm(t *testing.T) {
	t.Parallel()
	p := Paths{Root: "/mnt"}
	for got, want := range map[string]string{
		p.Kubeconfig(): "/mnt/etc/kubernetes/kubelet.conf", p.AdminConfig(): "/mnt/etc/kubernetes/admin.conf", p.Manifests(): "/mnt/etc/kubernetes/manifests",
		p.KubeletConfig(): "/mnt/var/lib/kubelet/config.yaml", p.KubeletFlags(): "/mnt/var/lib/kubelet/kubeadm-flags.env",
		p.InstanceConfig(): "/mnt/var/lib/kubelet/instance-config.yaml", p.PullRecords(): "/mnt/var/lib/kubelet/image_manager",
		p.Etcd("ca.crt"): "/mnt/etc/kubernetes/pki/etcd/ca.crt", p.KubeadmTemp(): "/mnt/etc/kubernetes/tmp", p.PKI(): "/mnt/etc/kubernetes/pki",
		p.KubeletPKI(): "/mnt/var/lib/kubelet/pki", ContainerdSocket: "/run/containerd/containerd.sock", CRIOSocket: "/run/crio/crio.sock",
		CertificateDir{}.Files("admin.conf")[0]: "/etc/kubernetes/admin.conf", CertificateDir{}.Files("scheduler.conf")[0]: "/etc/kubernetes/scheduler.conf",
		CertificateDir{}.Files("etcd-peer")[1]: "/etc/kubernetes/pki/etcd/peer.key", CertificateDir{}.Files(KubeletClient)[0]: "/var/lib/kubelet/pki/kubelet-client-current.pem",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The kubelet's own files are where the distribution of the node has its kubelet.
func TestNodePaths(t *testing.T) {
	t.Parallel()
	k0s, k3s := t.TempDir(), t.TempDir()
	put(t, k0s, "/etc/systemd/system/k0sworker.service", []byte("x"))
	put(t, k3s, "/etc/systemd/system/k3s-agent.service", []byte(k3sUnit))
	put(t, k3s, "/var/lib/kubelet/config.yaml", []byte("imagePullCredentialsVerificationPolicy: AlwaysVerify\n"))
	drops := "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/"
	put(t, k3s, drops+"00-k3s-defaults.conf", []byte("imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages\n"))
	put(t, k3s, drops+"10-site.conf", []byte("imagePullCredentialsVerificationPolicy: NeverVerify\n"))
	put(t, k3s, drops+"20-site.conf", []byte("maxPods: 50\n"))
	for d, want := range map[*Detection]string{nil: "/var/lib/kubelet/image_manager", Supervised(k3s): k3s + "/var/lib/kubelet/image_manager", Supervised(k0s): k0s + "/var/lib/k0s/kubelet/image_manager"} {
		if got := NodePaths(d).PullRecords(); got != want {
			t.Errorf("records of pulls in %s, want %s", got, want)
		}
	}
	if got := PullVerification(NodePaths(Supervised(k3s))); got != NeverVerify {
		t.Errorf("policy %q", got)
	}
	if got := NodePaths(Supervised(k0s)).Manifests(); got != k0s+"/etc/kubernetes/manifests" {
		t.Errorf("static pods of kubeadm in %s", got)
	}
}
