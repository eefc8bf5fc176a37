// Package lab makes real Kubernetes clusters on one Linux machine, and takes
// them away again.
//
// Promise: a lab is a cluster made by real kubeadm: etcd (with fsync), API
// server, controllers and scheduler as static pods, kube-proxy and CoreDNS; its
// nodes have the real systemd as pid 1, a real container runtime (containerd
// or CRI-O) and kubelet, a disk of their own and a /dev of their own. No node has a way out, and what tries to
// leave is counted. Nothing is put into the machine's own network but one
// listener on the loopback address. Taking a lab down works at any time, also
// after a crash, and removes only what is the lab's.
//
// Every lab has a network of its own, so labs side by side use the same
// addresses and do not meet: 10.88.0.1 is the switch, 10.88.0.11 and up the
// nodes, 10.244.N.0/24 the pods of node N, 10.96.0.0/16 the services.
//
// Size: the methods of one type, Lab, and what makes one; what stands alone has
// been taken out (machine, components, cgroups, loop, mains, scenario).
//
// Inputs: [Options], root, the Debian packages of internal/lab/components, Go.
// Called by internal/lab/labcmd, the demo, and tests.
//
//	l, err := lab.Up(ctx, lab.Options{Name: "demo", Version: "v1.35.4", Progress: log.Println})
//	defer lab.Down(context.Background(), "demo")
//	err = l.Exec(ctx, "n2", nil, os.Stdout, os.Stderr, "systemctl", "status", "kubelet")
//
// A program that imports this package can be started again by it under other
// names (argument zero) to become a supervisor, a node or a command in a node;
// see entrances.go.
package lab
