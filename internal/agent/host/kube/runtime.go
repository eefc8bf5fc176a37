package kube

import (
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/distribution"
)

// Sockets of known container runtimes.
const (
	ContainerdSocket = distribution.ContainerdSocket
	CRIOSocket       = distribution.CRIOSocket
)

// InstanceConfig is the part of the kubelet's configuration that kubeadm keeps for
// this node alone.
func (p Paths) InstanceConfig() string { return p.join(places.KubeletDir + "/instance-config.yaml") }

var endpointFlag = regexp.MustCompile(`--container-runtime-endpoint[= ]"?([^" \n]+)`)

// RuntimeSocket returns the socket of the kubelet's container runtime: that of the kubelet's flags,
// else of its configuration. On a node without either it returns the socket that exists,
// containerd's if none or both do.
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
	if _, err := os.Stat(p.join(ContainerdSocket)); err != nil {
		if _, err := os.Stat(p.join(CRIOSocket)); err == nil {
			return CRIOSocket
		}
	}
	return ContainerdSocket
}
