package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/distribution"
)

// supervisedNode is a node on which a unit starts everything with a program.
func supervisedNode(t *testing.T, unit, program string) *nodeHost {
	t.Helper()
	root := t.TempDir()
	file := filepath.Join(root, "/etc/systemd/system", unit)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("[Service]\nExecStart="+program+" agent\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := kube.Supervised(root)
	if d == nil {
		t.Fatal("no distribution was detected")
	}
	return &nodeHost{supervised: d, paths: kube.NodePaths(d)}
}

// Network plugins and static pods are where the distribution of the node has them.
func TestPlacesAreTheNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host               *nodeHost
		plugins, pods, row string
	}{
		"kubeadm": {&nodeHost{}, "/opt/cni/bin", "/etc/kubernetes/manifests", distribution.Kubeadm},
		"k3s":     {supervisedNode(t, "k3s-agent.service", "/usr/local/bin/k3s"), "", "/var/lib/rancher/k3s/agent/pod-manifests", distribution.K3s},
		"RKE2":    {supervisedNode(t, "rke2-agent.service", "/usr/bin/rke2"), "/opt/cni/bin", "/var/lib/rancher/rke2/agent/pod-manifests", distribution.RKE2},
		"k0s":     {supervisedNode(t, "k0sworker.service", "/usr/local/bin/k0s"), "/opt/cni/bin", "", distribution.K0s},
	} {
		if got := runtimePart(c.host).PluginDir(); got != c.plugins {
			t.Errorf("%s: network plugins in %q", name, got)
		}
		if got := c.host.StaticPodDir(); got != c.pods {
			t.Errorf("%s: static pods in %q", name, got)
		}
		if got := c.host.Distribution().Name; got != c.row {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// k3s has links to itself under the names of other programs. A payload of that name must not
// replace it.
func TestLinkToTheSupervisorIsNoProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for name, target := range map[string]string{"ctr": "k3s", "crun": ""} {
		at := filepath.Join(dir, name)
		if target == "" {
			if err := os.WriteFile(at, []byte("x"), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, target), []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
	}
	h := supervisedNode(t, "k3s-agent.service", filepath.Join(dir, "k3s"))
	for name, want := range map[string]string{"ctr": "", "crun": filepath.Join(dir, "crun")} {
		if got, err := runtimePart(h).Program(t.Context(), name); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
}
