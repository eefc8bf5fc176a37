package kube

import (
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Sockets of known container runtimes.
const (
	ContainerdSocket = "/run/containerd/containerd.sock"
	CRIOSocket       = "/run/crio/crio.sock"
)

// InstanceConfig is the part of the kubelet's configuration that kubeadm keeps for
// this node alone.
func (p Paths) InstanceConfig() string { return p.at("/var/lib/kubelet/instance-config.yaml") }

var endpointFlag = regexp.MustCompile(`--container-runtime-endpoint[= ]"?([^" \n]+)`)

// RuntimeSocket is where the kubelet's container runtime listens: as its flags
// say, else its configuration; on a node that has no kubelet's configuration yet
// the socket that is there, containerd's if none or both are.
func RuntimeSocket(p Paths) string {
	if b, err := os.ReadFile(p.KubeletFlags()); err == nil {
		if m := endpointFlag.FindSubmatch(b); m != nil {
			return strings.TrimPrefix(string(m[1]), "unix://")
		}
	}
	for _, file := range []string{p.InstanceConfig(), p.KubeletConfig()} {
		var c struct {
			Endpoint string `json:"containerRuntimeEndpoint"`
		}
		if b, err := os.ReadFile(file); err == nil && yaml.Unmarshal(b, &c) == nil && c.Endpoint != "" {
			return strings.TrimPrefix(c.Endpoint, "unix://")
		}
	}
	if _, err := os.Stat(p.at(ContainerdSocket)); err != nil {
		if _, err := os.Stat(p.at(CRIOSocket)); err == nil {
			return CRIOSocket
		}
	}
	return ContainerdSocket
}
