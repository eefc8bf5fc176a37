package bundlefiles

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// CheckAddress returns why the controller does not dial the address that a node's agent
// reports: the Node object must list it. If a Node lists no address, any address is allowed
// except link-local and multicast ones.
func CheckAddress(n *corev1.Node, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("its address %.64q is not an IP address with a port", address)
	}
	ip := at.Addr().Unmap()
	if ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() {
		return fmt.Errorf("its address %s cannot belong to a node", address)
	}
	listed := false
	for _, a := range n.Status.Addresses {
		own, err := netip.ParseAddr(a.Address)
		if err != nil || a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if own.Unmap() == ip {
			return nil
		}
		listed = true
	}
	if listed {
		return fmt.Errorf("its address %s is not among the node's addresses: set address in the node's /etc/refit/agent.yaml to its InternalIP", address)
	}
	return nil
}
