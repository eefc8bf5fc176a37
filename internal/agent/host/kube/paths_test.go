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
