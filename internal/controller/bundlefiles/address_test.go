package bundlefiles

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	node := func(addresses ...corev1.NodeAddress) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Addresses: addresses}}
	}
	own := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}
	own6 := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00::7"}
	name := corev1.NodeAddress{Type: corev1.NodeHostName, Address: "10.0.0.9"}
	for what, c := range map[string]struct {
		n       *corev1.Node
		address string
		ok      bool
	}{
		"its own address":                   {node(name, own), "10.0.0.7:7946", true},
		"its own IPv6 address":              {node(own, own6), "[fd00::7]:7946", true},
		"another machine's":                 {node(own), "10.0.0.8:7946", false},
		"a name that looks like an address": {node(own, name), "10.0.0.9:7946", false},
		"the cloud's metadata service":      {node(own), "169.254.169.254:80", false},
		"metadata of a Node without any":    {node(), "169.254.169.254:80", false},
		"the controller's own host":         {node(own), "127.0.0.1:10250", false},
		"IPv4 in IPv6":                      {node(own), "[::ffff:169.254.169.254]:80", false},
		"every address":                     {node(), "0.0.0.0:80", false},
		"a name":                            {node(own), "localhost:80", false},
		"no port":                           {node(own), "10.0.0.7", false},
		"a Node that lists none":            {node(), "127.0.0.1:7946", true},
	} {
		if err := CheckAddress(c.n, c.address); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}
