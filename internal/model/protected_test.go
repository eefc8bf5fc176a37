package model

import (
	"strings"
	"testing"
)

// What a NodeConfig must not write on nodes of any distribution, and what people do write there.
func TestProtectedPath(t *testing.T) {
	for p, why := range map[string]string{
		"/etc/kubernetes/admin.conf":                               "/etc/kubernetes is kubeadm's: certificates, kubeconfigs and static pods are changed by their own updaters",
		"/var/lib/etcd/member":                                     "/var/lib/etcd is etcd's data",
		"/var/lib/kubelet/config.yaml":                             "/var/lib/kubelet is the kubelet's state; its configuration is spec.kubelet",
		"/var/lib/containerd/x":                                    "/var/lib/containerd is the container runtime's state",
		"/run/crio/x":                                              "/run/crio is the container runtime's state",
		"/opt/cni/bin/bridge":                                      "/opt/cni/bin is network plugins",
		"/var/lib/rancher/k3s":                                     "k3s's: its identity, images, static pods and data",
		"/var/lib/rancher/k3s/agent/images/x.tar":                  "k3s's",
		"/var/lib/rancher/k3s/agent/pod-manifests/x.yaml":          "k3s's",
		"/var/lib/rancher/k3s/agent/kubelet.kubeconfig":            "k3s's",
		"/var/lib/rancher/k3s/server/manifests":                    "k3s's", // the directory itself
		"/etc/rancher/k3s/k3s.yaml":                                "k3s's",
		"/etc/rancher/node/password":                               "the password of the node",
		"/usr/local/bin/k3s":                                       "the program that starts nodes of k3s",
		"/var/lib/rancher/rke2/server/tls/server-ca.key":           "RKE2's",
		"/etc/rancher/rke2/rke2.yaml":                              "RKE2's",
		"/usr/bin/rke2":                                            "the program that starts nodes of RKE2",
		"/var/lib/k0s/pki/ca.key":                                  "k0s's",
		"/var/lib/k0s/images/x.tar":                                "k0s's",
		"/usr/local/bin/k0s":                                       "the program that starts nodes of k0s",
		"/run/k0s/x":                                               "the container runtime's state",
		"/opt/nodeadm/tracker":                                     "a mark of EKS Hybrid Nodes",
		"/etc/kubernetes/kubelet/config.json":                      "/etc/kubernetes is",
		"/usr/bin/kubelet":                                         "the program that starts nodes of kubeadm",
		"/run/x":                                                   "gone after a reboot",
		"/etc/systemd/system/refit-agent.service":                  "refit's own unit",
		"/etc/rancher/k3s/config.yaml":                             "",
		"/etc/rancher/k3s/config.yaml.d/10-labels.yaml":            "",
		"/etc/rancher/k3s/registries.yaml":                         "",
		"/etc/rancher/rke2/config.yaml":                            "",
		"/etc/k0s/k0s.yaml":                                        "",
		"/etc/k0s/containerd.d/x.toml":                             "",
		"/var/lib/rancher/k3s/agent/etc/containerd/x.toml.tmpl":    "",
		"/var/lib/rancher/rke2/server/manifests/rke2-canal-x.yaml": "",
		"/var/lib/k0s/manifests/site/x.yaml":                       "",
		"/etc/containerd/config.toml":                              "",
		"/etc/cni/net.d/10-x.conflist":                             "",
		"/var/lib/rancher/k3s-site/x":                              "",
	} {
		if got := ProtectedPath(p); (got == "") != (why == "") || !strings.Contains(got, why) {
			t.Errorf("%s: %q, want %q", p, got, why)
		}
	}
}

// The unit that starts a node is only ever enabled, whichever distribution it is of.
func TestProtectedUnit(t *testing.T) {
	for _, name := range []string{"kubelet.service", "containerd.service", "crio.service", "k3s.service", "k3s-agent.service",
		"rke2-server.service", "rke2-agent.service", "k0scontroller.service", "k0sworker.service"} {
		for state, free := range map[string]bool{UnitEnabled: true, UnitDisabled: false, UnitMasked: false} {
			if why := ProtectedUnit(name, state); (why == "") != free {
				t.Errorf("%s, %s: %q", name, state, why)
			}
		}
	}
	if why := ProtectedUnit("chronyd.service", UnitMasked); why != "" {
		t.Error(why)
	}
}
