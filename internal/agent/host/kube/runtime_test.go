package kube

import (
	"os"
	"path/filepath"
	"testing"
)

// Which runtime a node has is what its kubelet uses.
func TestRuntimeSocket(t *testing.T) {
	const other = "/run/other.sock"
	flags := "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/flag.sock --pod-infra-container-image=x\"\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a node without anything":                    {nil, ContainerdSocket},
		"the kubelet's flags":                        {map[string]string{Paths{}.KubeletFlags(): flags, Paths{}.KubeletConfig(): "containerRuntimeEndpoint: unix://" + other}, "/run/flag.sock"},
		"the kubelet's configuration":                {map[string]string{Paths{}.KubeletFlags(): "KUBELET_KUBEADM_ARGS=\"\"\n", Paths{}.KubeletConfig(): "containerRuntimeEndpoint: unix://" + other}, other},
		"what kubeadm keeps for this node alone":     {map[string]string{Paths{}.InstanceConfig(): "containerRuntimeEndpoint: unix://" + CRIOSocket, Paths{}.KubeletConfig(): "containerRuntimeEndpoint: unix://" + other}, CRIOSocket},
		"a configuration that names none, and CRI-O": {map[string]string{Paths{}.KubeletConfig(): "kind: KubeletConfiguration\n", CRIOSocket: ""}, CRIOSocket},
		"both runtimes, before the kubelet":          {map[string]string{ContainerdSocket: "", CRIOSocket: ""}, ContainerdSocket},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := RuntimeSocket(Paths{Root: root}); got != c.want {
				t.Fatalf("%s", got)
			}
		})
	}
}
