package model

// Default ports of refit. No common node component uses them: docs/reference/ports.md,
// which a test compares.
const (
	// PortPeers is where agents answer each other.
	PortPeers = 18740
	// PortHealth is the controller's, on loopback.
	PortHealth = 18741
	// PortMetrics is the controller's: on all addresses where it is installed, on loopback otherwise.
	PortMetrics = 18742
	// PortClusterAPI is where manifests and examples put the Cluster API extension.
	PortClusterAPI = 18743
	// PortJoins is where examples put first-boot configurations.
	PortJoins = 18744
	// PortStatus is where examples put the status page.
	PortStatus = 18745
	// PortNodeStatus is that of the page on a node.
	PortNodeStatus = 18746
)

// usedByNodes are ports without which a node does not run: a program of refit that bound
// one of them first would keep its owner down. docs/reference/ports.md has more.
var usedByNodes = []struct {
	from, to int32
	by       string
}{
	{1, 1023, "the system"}, {2379, 2381, "etcd"}, {6443, 6443, "the API server"}, {10248, 10250, "the kubelet and kube-proxy"},
	{10255, 10260, "the kubelet and the control plane"},
}

// PortUsedBy names who needs a port on nodes, "" if refit may use it.
func PortUsedBy(port int32) string {
	for _, u := range usedByNodes {
		if port >= u.from && port <= u.to {
			return u.by
		}
	}
	return ""
}
